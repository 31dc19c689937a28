"""Make a log out of the Steam reviews, which are written as Python literals, a line each."""

from __future__ import annotations

import ast
import csv
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from hcarec.data.sources import unpack
from hcarec.data.sources.model import MIB, Converted, Progress

_LONGEST = MIB  # no review comes near; keeps a damaged file from being parsed as one huge literal


def convert(raw: Path, target: Path, max_bytes: int, progress: Progress) -> Converted:
    """Write user, item and date of each review, a row a line; a line that cannot be read becomes an empty row, for the reader to set aside."""
    rows = 0
    with unpack.open_stream(raw, max_bytes) as stream, open(target, "w", encoding="utf-8", newline="") as out:
        write = csv.writer(out, lineterminator="\n").writerow
        write(["user_id", "item_id", "date"])
        for line in _lines(stream):
            if line.strip():
                rows += 1
                write(_fields(line))
                if rows % 20_000 == 0:
                    progress("reading reviews", rows, None)
    return Converted(rows)


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines; of one that is too long only its beginning."""
    while line := stream.readline(_LONGEST + 1):
        rest = line
        while rest and len(rest) > _LONGEST and not rest.endswith(b"\n"):
            rest = stream.readline(_LONGEST + 1)
        yield line


def _fields(line: bytes) -> list[str]:
    if len(line) > _LONGEST:
        return ["", "", ""]
    try:
        review = ast.literal_eval(line.decode("utf-8"))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return ["", "", ""]
    if not isinstance(review, dict):
        return ["", "", ""]
    return [_text(review.get(key)) for key in ("username", "product_id", "date")]


def _text(value: object) -> str:
    """Return an id or date as text; halves of surrogate pairs, which Python 2 wrote, are joined."""
    if not isinstance(value, (str, int)):
        return ""
    return str(value).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
