"""Set aside the rows that cannot be used, with file, row number and reason."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import TextIO

import numpy as np

from hcarec.data.batches import Batch
from hcarec.data.scan import OK, REASONS
from hcarec.errors import InputError

NAME = "quarantine.csv"
LONGEST = 2000


class Quarantine:
    """Count bad rows by reason, and write them down if there is a folder to write into."""

    def __init__(self, folder: Path | None, strict: bool = False) -> None:
        self._folder, self._strict = folder, strict
        self._out: TextIO | None = None
        self.counts: Counter[str] = Counter()

    def take(self, batch: Batch, file: str) -> None:
        """Take the bad rows of a batch."""
        bad = np.flatnonzero(batch.status != OK)
        for n in bad.tolist():
            row, reason, content = batch.first_row + n, REASONS[int(batch.status[n])], batch.content(n)
            if self._strict:
                raise InputError(f"{file}, row {row:,}: {reason} ({content[:80]!r}); without --strict such rows are set aside and counted")
            self.counts[reason] += 1
            self._write(file, row, reason, content)

    def close(self) -> None:
        """Finish the file, if any row went there."""
        if self._out is not None:
            self._out.close()

    def _write(self, file: str, row: int, reason: str, content: str) -> None:
        if self._folder is None:
            return
        if self._out is None:
            self._out = open(self._folder / NAME, "w", newline="", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115
            csv.writer(self._out).writerow(["file", "row", "reason", "content"])
        shown = content if len(content) <= LONGEST else content[:LONGEST] + f" .. ({len(content):,} characters)"
        csv.writer(self._out).writerow([file, row, reason, shown.replace("\x00", "\\x00")])
