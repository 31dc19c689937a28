"""Outside ids, kept as they came, by position and by id."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from hcarec.errors import DataError, nearest

if TYPE_CHECKING:
    import polars as pl


class Ids(Sequence[str | int]):
    """A table of texts in index order: UTF-8 bytes in one blob, cut by offsets.

    `blob` (n_bytes,) uint8; `offsets` (n + 1,) int64. With `integer` the texts are canonical integers of any
    size and come out as `int`; both forms are understood when looking one up.
    """

    def __init__(self, blob: np.ndarray, offsets: np.ndarray, integer: bool = False) -> None:
        self.blob, self.offsets, self.integer = blob, offsets, integer

    @classmethod
    def of(cls, values: Iterable[str | int]) -> Ids:
        """Build a table from values; it is an integer table when all of them are integers."""
        values = list(values)
        texts = [str(value).encode() for value in values]
        offsets = np.zeros(len(texts) + 1, np.int64)
        np.cumsum([len(text) for text in texts], out=offsets[1:])
        integer = bool(values) and all(isinstance(value, (int, np.integer)) for value in values)
        return cls(np.frombuffer(b"".join(texts), np.uint8), offsets, integer)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def text(self, index: int) -> str:
        """Return an id as text, whatever its kind."""
        if not 0 <= index < len(self):
            raise IndexError(f"index {index} in a table of {len(self)}")
        try:
            return self.blob[self.offsets[index] : self.offsets[index + 1]].tobytes().decode()
        except UnicodeDecodeError as error:
            raise _damaged(error) from None

    def __getitem__(self, index: int) -> str | int:  # type: ignore[override]
        text = self.text(int(index))
        return int(text) if self.integer else text

    def texts(self) -> Iterator[str]:
        """Yield all ids as text, in order."""
        blob, offsets = self.blob.tobytes(), self.offsets.tolist()
        try:
            for start, end in itertools.pairwise(offsets):
                yield blob[start:end].decode()
        except UnicodeDecodeError as error:
            raise _damaged(error) from None

    def __iter__(self) -> Iterator[str | int]:
        return map(int, self.texts()) if self.integer else self.texts()

    def to_series(self, name: str = "") -> pl.Series:
        """Return all ids as a column of the type that they had in the log; whole numbers beyond 64 bits stay texts."""
        import polars as pl

        texts = pl.Series(name, [*self.texts()], dtype=pl.String)
        if not self.integer:
            return texts
        numbers = texts.cast(pl.Int64, strict=False)
        return texts if numbers.has_nulls() else numbers

    @cached_property
    def _index(self) -> dict[str, int]:
        return {text: index for index, text in enumerate(self.texts())}

    def find(self, value: str | int) -> int:
        """Return the index of an id, or -1."""
        return self._index.get(str(value), -1)

    def index(self, value: str | int, *_: int) -> int:
        """Return the index of an id, or fail with a word on what is near."""
        found = self.find(value)
        if found < 0:
            raise DataError(f"id '{value}' is not among the {len(self):,} known{nearest(str(value), self._index)}")
        return found

    def __contains__(self, value: object) -> bool:
        return isinstance(value, (str, int, np.integer)) and self.find(str(value)) >= 0

    def take(self, indices: np.ndarray) -> Ids:
        """Return the table of the given rows, in that order."""
        starts = np.asarray(self.offsets)[indices]
        lengths = np.asarray(self.offsets)[indices + 1] - starts
        offsets = np.zeros(len(indices) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        source = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
        return Ids(np.asarray(self.blob)[source], offsets, self.integer)


def _damaged(error: UnicodeDecodeError) -> DataError:
    return DataError(f"an id or a title is not UTF-8 ({error.reason}): the data is damaged, prepare it again")
