"""The sparse part of a score: what is added to the product of the vectors for some items.

The score of a corrected item is fl32(product + value): the chain of fused multiply-adds of
`hcarec.ops.score`, then one float32 addition. An item without a correction keeps the bits of its
product; nothing is added to it, not even zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Corrections(NamedTuple):
    """What is added to the scores of some items, user by user.

    items (n,) int32, ascending and distinct within each user; offsets (users + 1,) int64;
    values (n,) float32, finite.
    """

    items: np.ndarray
    offsets: np.ndarray
    values: np.ndarray

    @classmethod
    def join(cls, parts: Sequence[Corrections]) -> Corrections:
        """Return the corrections of several groups of users, one after another."""
        sizes = [np.zeros(1, np.int64), *(np.diff(part.offsets) for part in parts)]
        return cls(
            np.concatenate([np.empty(0, np.int32), *(part.items for part in parts)]),
            np.cumsum(np.concatenate(sizes)),
            np.concatenate([np.empty(0, np.float32), *(part.values for part in parts)]),
        )

    def take(self, users: np.ndarray | slice) -> Corrections:
        """Return the corrections of some users, (n,) int or a slice, in that order."""
        begins, ends = self.offsets[:-1][users], self.offsets[1:][users]
        offsets = np.zeros(len(begins) + 1, np.int64)
        np.cumsum(ends - begins, out=offsets[1:])
        places = np.arange(offsets[-1]) + np.repeat(begins - offsets[:-1], ends - begins)
        return Corrections(self.items[places], offsets, self.values[places])

    def check(self, n_users: int, n_items: int) -> None:
        """Assert all that the class promises: the kernels check no bounds."""
        items, offsets, values = self
        assert items.dtype == np.int32 and offsets.dtype == np.int64 and values.dtype == np.float32
        assert items.shape == values.shape == (len(items),) and offsets.shape == (n_users + 1,)
        assert all(array.flags.c_contiguous for array in self)
        assert offsets[0] == 0 and offsets[-1] == len(items) and (np.diff(offsets) >= 0).all()
        if not len(items):
            return
        assert items.min() >= 0 and items.max() < n_items
        ascending = items[1:] > items[:-1]
        begins = offsets[(offsets > 0) & (offsets < len(items))]
        ascending[begins - 1] = True  # one user's last item and the next user's first
        assert ascending.all(), "the items of a user are not ascending and distinct"
        assert np.isfinite(values).all()
