"""Sparse tables of items: the sums of their rows, and the nearest neighbors of each item."""

from __future__ import annotations

from hcarec.ops.tables.counts import add_counts
from hcarec.ops.tables.nearest import nearest_items
from hcarec.ops.tables.rows import sum_rows

__all__ = ["add_counts", "nearest_items", "sum_rows"]
