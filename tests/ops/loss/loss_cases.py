"""Tasks for tests of full cross-entropy, and their solutions by the reference in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from hcarec.ops import reference
from hcarec.ops.rank.corrections import Corrections

CORRECTED = ["none", "some", "all", "target"]


def make(n_positions: int, n_items: int, d: int, corrected: str, seed: int = 3) -> tuple[Any, ...]:
    """Return H, Z, targets and corrections of some items of some positions."""
    rng = np.random.default_rng([seed, n_positions, n_items, d])
    H, Z = (rng.standard_normal((n, d), np.float32) for n in (n_positions, n_items))
    targets = rng.integers(0, n_items, n_positions)
    if corrected == "none":
        return H, Z, targets, None
    if corrected == "all":
        chosen = np.ones((n_positions, n_items), bool)
    else:
        chosen = rng.random((n_positions, n_items)) < (0.1 if corrected == "some" else 0.0)
    if corrected == "target":
        chosen[np.arange(n_positions), targets] = True
    rows, items = np.nonzero(chosen)
    offsets = np.searchsorted(rows, np.arange(n_positions + 1))
    values = rng.standard_normal(len(items), np.float32) * np.float32(2)
    return H, Z, targets, Corrections(items.astype(np.int32), offsets, values)


def expect(H: Any, Z: Any, targets: Any, corrections: Any) -> list[Any]:
    """Return loss, dH, dZ and dvalues of the reference in float64."""
    leaves = [torch.from_numpy(rows.astype(np.float64)).requires_grad_() for rows in (H, Z)]
    ragged = None
    if corrections is not None:
        items, offsets, values = map(torch.from_numpy, corrections)
        leaves.append(values.double().requires_grad_())
        ragged = items, offsets, leaves[2]
    loss = reference.cross_entropy(leaves[0], leaves[1], torch.from_numpy(targets), ragged)
    loss.backward()
    return [loss.item(), *(leaf.grad.numpy() for leaf in leaves)]  # type: ignore[union-attr]


def check(got: Any, wanted: Any, tolerance: float, floor: float = 1e-7) -> None:
    """Compare loss and gradients, the gradients in norm.

    The floor is for gradients that are zero, as with a single item.
    """
    assert abs(got[0] - wanted[0]) <= tolerance * max(1.0, abs(wanted[0]))
    for mine, other in zip(got[1:], wanted[1:], strict=False):
        assert mine.shape == other.shape
        assert np.linalg.norm(mine - other) <= tolerance * np.linalg.norm(other) + floor
