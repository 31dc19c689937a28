"""Losses against sampled items, where the catalog is too large: sampled softmax, BPR-max, BCE.

A batch shares its negatives. Scores have the same sparse corrections as in ranking; a negative that
is a position's own target does not count there.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

Corrections = tuple[Tensor, Tensor, Tensor]
"""Items int32, ascending and distinct within a position; offsets (P + 1,) int64; values float32."""


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
    of_targets = (H * Z[targets]).sum(1).to(Z.dtype)
    of_negatives = (H @ Z[negatives].T).to(Z.dtype)  # autocast makes products of a lower type
    if corrections is not None:
        items, offsets, values = corrections
        position = torch.repeat_interleave(
            torch.arange(len(H), device=H.device), offsets.diff(), output_size=len(items)
        )
        items = items.long()
        # No more than one correction of a position is its target's: the order does not matter.
        own = torch.where(items == targets[position], values, 0)
        of_targets = of_targets.index_add(0, position, own)
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


def sampled_softmax(found: Sampled, log_q: Tensor) -> Tensor:
    """Return the mean cross-entropy of each target among the negatives.

    A negative stands for 1 / (K q) items, q being the chance to draw it, so that its score is
    lowered by log(K q); `log_q` (K,).
    """
    K = found.negatives.shape[1]
    negatives = found.negatives - log_q - math.log(K)
    together = torch.cat([found.targets[:, None], negatives], dim=1)
    return (torch.logsumexp(together, dim=1) - found.targets).mean()


def bpr_max(found: Sampled, penalty: float = 1.0) -> Tensor:
    """Return -log of the softmax-weighted chance that the target wins, plus a penalty.

    The penalty is the weighted mean of the squared scores of negatives.
    """
    weights = torch.softmax(found.negatives, dim=1)
    finite = found.negatives.masked_fill(found.negatives.isinf(), 0.0)
    wins = torch.sigmoid(found.targets[:, None] - finite)
    return (
        -torch.log((weights * wins).sum(1) + 1e-24) + penalty * (weights * finite.square()).sum(1)
    ).mean()


def bce(found: Sampled) -> Tensor:
    """Return -log sigma of the target's score plus the mean of -log(1 - sigma) of negatives."""
    there = found.negatives.isfinite()
    against = softplus(found.negatives.masked_fill(~there, 0.0)) * there
    return (-logsigmoid(found.targets) + against.sum(1) / there.sum(1).clamp(min=1)).mean()
