"""The order of items that score the same: by a fixed hash of the item's outside id.

The hash is FNV-1a (64 bits) over the id's UTF-8 bytes, stirred once more by the finaliser of splitmix64, because FNV
alone leaves the high bits of short ids badly mixed. It needs nothing but 64-bit integers, so that any program can
repeat it. An integer id counts as its decimal text. Lower keys come first, then lower indices.
"""

from __future__ import annotations

import numpy as np

_FNV_OFFSET = 0xCBF29CE484222325
_FNV_PRIME = 0x100000001B3
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB
_MASK = (1 << 64) - 1


def tie_key(item_id: str | bytes | int) -> int:
    """Return the 64-bit key of one item id."""
    data = item_id if isinstance(item_id, bytes) else str(item_id).encode()
    key = _FNV_OFFSET
    for byte in data:
        key = (key ^ byte) * _FNV_PRIME & _MASK
    key = (key ^ key >> 30) * _MIX_1 & _MASK
    key = (key ^ key >> 27) * _MIX_2 & _MASK
    return key ^ key >> 31


def tie_keys(blob: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the keys of a table of ids.

    `blob` (n_bytes,) uint8 and `offsets` (n + 1,) int64 as in `hcarec.ids.Ids`; the result is (n,) uint64.
    """
    blob, offsets = np.asarray(blob), np.asarray(offsets)
    lengths = np.diff(offsets)
    longest_first = np.argsort(-lengths, kind="stable")
    starts, lengths = offsets[:-1][longest_first], lengths[longest_first]
    keys = np.full(len(starts), _FNV_OFFSET, np.uint64)
    # One step per byte position; ids that have ended are a growing tail, so the work is the number of bytes.
    for position in range(int(lengths[0]) if len(lengths) else 0):
        alive = int(np.searchsorted(-lengths, -position, side="left"))
        keys[:alive] ^= blob[starts[:alive] + position]
        keys[:alive] *= np.uint64(_FNV_PRIME)
    keys = (keys ^ keys >> np.uint64(30)) * np.uint64(_MIX_1)
    keys = (keys ^ keys >> np.uint64(27)) * np.uint64(_MIX_2)
    keys ^= keys >> np.uint64(31)
    result = np.empty_like(keys)
    result[longest_first] = keys
    return result


def tie_rank(blob: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return each item's place among equals, (n,) int32: a permutation of 0..n-1 by key, then by index."""
    keys = tie_keys(blob, offsets)
    rank = np.empty(len(keys), np.int32)
    rank[np.argsort(keys, kind="stable")] = np.arange(len(keys), dtype=np.int32)
    return rank


def in_order(tie_rank: np.ndarray) -> np.ndarray:
    """Return the items in the order of their places among equals, (n,) int32."""
    items = np.empty(len(tie_rank), np.int32)
    items[tie_rank] = np.arange(len(tie_rank), dtype=np.int32)
    return items
