"""Losses against sampled items, where the catalog is too large: sampled softmax, BPR-max, BCE.

A batch shares its negatives. Scores have the same sparse corrections as in ranking; a negative that
is a position's own target does not count there.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding, logsigmoid, softplus

from hcarec.ops.loss.torch import cross_entropy

Corrections = tuple[Tensor, Tensor, Tensor]
"""Items int32, ascending and distinct within a position; offsets (P + 1,) int64; values float32."""

NEVER = -1e9
"""The score of a negative that does not count, or what is added to it."""


class Sampled(NamedTuple):
    """Scores of targets (P,) and of shared negatives (P, K), -inf where one is the target."""

    targets: Tensor
    negatives: Tensor


def draw(n: int, weights: Tensor | None, n_items: int, device: torch.device) -> Tensor:
    """Draw n items, uniformly or by weights (n_items,), with repetition, ascending."""
    if weights is None:
        drawn = torch.randint(n_items, (n,), device=device)
    else:
        drawn = torch.multinomial(weights, n, replacement=True)
    return drawn.sort().values


def scores(
    H: Tensor, Z: Tensor, targets: Tensor, negatives: Tensor, corrections: Corrections | None
) -> Sampled:
    """Return the corrected scores of queries H (P, d) with targets (P,) and negatives (K,).

    The negatives are ascending.
    """
    of_targets = _of_targets(H, Z, targets, corrections)
    of_negatives = (H @ Z[negatives].T).to(Z.dtype)  # autocast makes products of a lower type
    if corrections is not None:
        items, _, values = corrections
        position, items = _positions(corrections), items.long()
        # An item may have been drawn several times: each of its columns is corrected.
        first = torch.searchsorted(negatives, items)
        times = torch.searchsorted(negatives, items, right=True) - first
        entry = torch.repeat_interleave(torch.arange(len(items), device=H.device), times)
        column = (
            first[entry]
            + torch.arange(len(entry), device=H.device)
            - (times.cumsum(0) - times)[entry]
        )
        of_negatives = of_negatives.index_put(
            (position[entry], column), values[entry], accumulate=True
        )
    return Sampled(of_targets, of_negatives.masked_fill(negatives == targets[:, None], -torch.inf))


def sampled_softmax(
    H: Tensor,
    Z: Tensor,
    targets: Tensor,
    negatives: Tensor,
    log_chances: Tensor,
    corrections: Corrections | None,
    threads: int | None = None,
) -> Tensor:
    """Return the mean of log(exp s_t + sum_j exp s_j / c_j) - s_t over positions.

    t is a position's target, j runs over all negatives (K,) but t, ascending and distinct, and c_j
    is the chance that j is among them, so that the sum is right on average; `log_chances` (K,).

    This is the cross-entropy of one item more than the negatives, that of a score of 0, where
    scores are relative to the target's: log c_j and s_t become two more columns of a product. On a
    GPU plain torch computes it: negatives are few enough to hold their scores.
    """
    H, Z = H.float(), Z.float()
    of_targets = _of_targets(H, Z, targets, corrections)
    ones = H.new_ones(max(len(H), len(negatives)), 1)
    queries = torch.cat([H, ones[: len(H)], -of_targets[:, None]], dim=1)
    vectors = torch.cat(
        [embedding(negatives, Z), -log_chances[:, None], ones[: len(negatives)]], dim=1
    )
    last = torch.full_like(targets, len(negatives))
    with torch.autocast(H.device.type, enabled=False):  # for relative scores it is too coarse
        return cross_entropy(
            queries,
            torch.cat([vectors, vectors.new_zeros(1, vectors.shape[1])]),
            last,
            _among(corrections, targets, negatives, len(Z), H),
            "numba" if H.device.type == "cpu" else "torch",
            threads,
        )


def _of_targets(H: Tensor, Z: Tensor, targets: Tensor, corrections: Corrections | None) -> Tensor:
    """Return the corrected scores of targets (P,)."""
    of_targets = (H * embedding(targets, Z)).sum(1).to(Z.dtype)
    if corrections is None:
        return of_targets
    items, _, values = corrections
    position = _positions(corrections)
    # No more than one correction of a position is its target's: the order does not matter.
    return of_targets.index_add(0, position, torch.where(items == targets[position], values, 0))


def _positions(corrections: Corrections) -> Tensor:
    """Return the position of every correction."""
    items, offsets, _ = corrections
    numbers = torch.arange(len(offsets) - 1, device=items.device)
    return torch.repeat_interleave(numbers, offsets.diff(), output_size=len(items))


def _among(
    corrections: Corrections | None, targets: Tensor, negatives: Tensor, n_items: int, H: Tensor
) -> Corrections:
    """Return the corrections of negatives, by their places, and one that takes out the target."""
    places = torch.full((n_items,), -1, device=H.device)
    places[negatives] = torch.arange(len(negatives), device=H.device)
    of_target = places[targets]
    position, column = (of_target >= 0).nonzero().squeeze(1), of_target[of_target >= 0]
    values = H.new_full((len(position),), NEVER)
    if corrections is not None:
        items, of = corrections[0].long(), _positions(corrections)
        kept = (places[items] >= 0) & (items != targets[of])
        position, column = torch.cat([position, of[kept]]), torch.cat([column, places[items[kept]]])
        values = torch.cat([values, corrections[2][kept]])
    order = (position * len(negatives) + column).argsort()
    offsets = torch.bincount(position, minlength=len(H)).cumsum(0)
    return column[order].int(), torch.cat([offsets.new_zeros(1), offsets]), values[order]


def bpr_max(found: Sampled, penalty: float = 1.0) -> Tensor:
    """Return -log of the softmax-weighted chance that the target wins, plus a penalty.

    The penalty is the weighted mean of the squared scores of negatives.
    """
    is_target = found.negatives.isinf()
    weights = torch.softmax(found.negatives.masked_fill(is_target, NEVER), dim=1).masked_fill(
        is_target, 0.0
    )
    finite = found.negatives.masked_fill(is_target, 0.0)
    wins = torch.sigmoid(found.targets[:, None] - finite)
    return (
        -torch.log((weights * wins).sum(1) + 1e-24) + penalty * (weights * finite.square()).sum(1)
    ).mean()


def bce(found: Sampled) -> Tensor:
    """Return -log sigma of the target's score plus the mean of -log(1 - sigma) of negatives."""
    there = found.negatives.isfinite()
    against = softplus(found.negatives.masked_fill(~there, 0.0)) * there
    return (-logsigmoid(found.targets) + against.sum(1) / there.sum(1).clamp(min=1)).mean()
