"""The copy term: what the last events add to the scores of their items, as sparse corrections."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

from hcarec.ops.hca.windows import products, totals


def copy_corrections(
    items: Tensor,
    rows: Tensor,
    steps: Tensor,
    query: Tensor,
    Z: Tensor,
    bias: Tensor,
    scale: Tensor,
    rate: Tensor,
    n_items: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the copy term of some positions: one correction for each distinct item of a window.

    items (B, T); rows, steps (P,) the positions; query (P, d) their copy_Q o; Z (B * T, d) the
    vectors of `items`; bias (w_c,), scale (1,), rate (1,); items lie below n_items -> items (n,)
    int32, ascending within a position, offsets (P + 1,) int64, values (n,). On a GPU n is P * w_c,
    so that nobody waits for it: what lies behind the last offset is n_items, and 0.
    """
    steps_back = steps[:, None] - torch.arange(len(bias), device=steps.device)
    window = torch.where(steps_back >= 0, rows[:, None] * items.shape[1] + steps_back, -1)
    w = softplus(products(query, Z, window) + bias)
    # A window of -1 reads the last event; an item behind all others takes its place.
    found = torch.where(window >= 0, items.reshape(-1)[window], n_items)
    distinct, offsets, group = _groups(found, n_items)
    sums = totals(w, group, len(distinct))
    return distinct, offsets, scale * torch.log1p(torch.exp(rate) * sums)


def _groups(found: Tensor, n_items: int) -> tuple[Tensor, Tensor, Tensor]:
    """Group equal items of each row of (P, w); items of n_items or more do not count.

    Return the distinct items row by row, ascending (n,) int32, their offsets (P + 1,), and the
    group of each place (P, w), -1 for none. On a GPU n is P * w, with n_items behind the last one.
    """
    ordered, order = found.sort(dim=1)
    first = ordered < n_items
    first[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    offsets = first.new_zeros(len(found) + 1, dtype=torch.int64)
    torch.cumsum(first.sum(1), 0, out=offsets[1:])
    numbers = (torch.cumsum(first.view(-1), 0) - 1).view_as(order)
    numbers = torch.where(ordered < n_items, numbers, -1)
    group = torch.empty_like(order).scatter_(1, order, numbers)
    return _listed(ordered, first, numbers, n_items), offsets, group


def _listed(ordered: Tensor, first: Tensor, numbers: Tensor, n_items: int) -> Tensor:
    """Return the items of (P, w) that are the first of their group, in the order of `numbers`."""
    if ordered.device.type == "cpu":
        return ordered[first].to(torch.int32)
    n = ordered.numel()
    places = torch.where(first, numbers, n)  # all others share a place behind the end
    listed = ordered.new_full((n + 1,), n_items, dtype=torch.int32)
    listed.scatter_(0, places.view(-1), ordered.view(-1).to(torch.int32))
    return listed[:n]


def trimmed(corrections: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Return corrections without what lies behind the last offset; a GPU is waited for."""
    items, offsets, values = corrections
    n = int(offsets[-1])
    return items[:n], offsets, values[:n]
