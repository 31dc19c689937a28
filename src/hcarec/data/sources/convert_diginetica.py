"""Give the item views of Diginetica a time that orders them."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from pathlib import Path

from hcarec.data.sources import unpack
from hcarec.data.sources.model import Converted, Progress
from hcarec.errors import InputError, nearest

_WANTED = ("sessionId", "itemId", "timeframe", "eventdate")


def convert(raw: Path, target: Path, max_bytes: int, progress: Progress) -> Converted:
    """Write session, item and time in ms: the day of the view plus the ms since its session began.

    The file has the day and, apart from it, the ms within the session; neither alone orders a log (a session may cross
    midnight, and sessions must fall on their days for a split by time). A row that lacks either keeps its place
    without a time, for the reader to set aside.
    """
    rows, days = 0, dict[str, int | None]()
    with unpack.open_stream(raw, max_bytes) as stream, open(target, "w", encoding="utf-8", newline="") as out:
        lines = csv.reader(io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace", newline=""), delimiter=";", quoting=csv.QUOTE_NONE)
        write = csv.writer(out, lineterminator="\n").writerow
        session, item, frame, date = _places(next(lines, []), raw)
        write(["session_id", "item_id", "timestamp_ms"])
        try:
            for fields in lines:
                rows += 1
                if rows % 50_000 == 0:
                    progress("reading views", rows, None)
                if len(fields) <= max(session, item, frame, date):
                    write(["", "", ""])
                    continue
                day, offset = _day(fields[date].strip(), days), fields[frame].strip()
                usable = day is not None and offset.isascii() and offset.isdigit()
                write([fields[session], fields[item], day + int(offset) if usable and day is not None else ""])
        except csv.Error as error:
            raise InputError(f"'{raw}' is not a readable CSV near row {rows + 1} ({error})") from None
    return Converted(rows)


def _places(header: list[str], raw: Path) -> list[int]:
    found = [name.strip().strip('"') for name in header]
    names = [name.lower().replace("_", "") for name in found]  # some copies write session_id for sessionId
    for wanted in _WANTED:
        if wanted.lower() not in names:
            columns = ", ".join(found)[:200] or "none"
            raise InputError(f"'{raw.name}' is not Diginetica's train-item-views.csv: it has no column '{wanted}', but {columns}{nearest(wanted, found)}")
    return [names.index(wanted.lower()) for wanted in _WANTED]


def _day(text: str, known: dict[str, int | None]) -> int | None:
    """Return the ms since 1970 at which a day begins, None where the text is no day."""
    if text not in known:
        try:
            known[text] = int(datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()) * 1000
        except ValueError:
            known[text] = None
    return known[text]
