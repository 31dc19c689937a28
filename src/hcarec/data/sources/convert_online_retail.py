"""Make a log of purchases out of the invoice lines of Online Retail."""

from __future__ import annotations

import codecs
import csv
import io
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from hcarec.data.sources import unpack
from hcarec.data.sources.model import MIB, Converted, Progress
from hcarec.errors import InputError, nearest

_NAMES = {  # the column's name in Online Retail, and in its successor Online Retail II
    "invoice": ("InvoiceNo", "Invoice"),
    "item": ("StockCode",),
    "name": ("Description",),
    "time": ("InvoiceDate",),
    "user": ("CustomerID", "Customer ID"),
}
_FORMATS = ("%m/%d/%Y %H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%m/%d/%Y %H:%M:%S")


def convert(raw: Path, target: Path, max_bytes: int, progress: Progress) -> Converted:
    """Keep the lines of known customers that are not of a cancelled invoice, as user, item and seconds.

    A line whose time cannot be read or that is cut short keeps its place with empty fields, for the reader to set aside.
    Times carry no zone and count as UTC. Each item takes the name it bears most often, the first one on ties.
    """
    times: dict[str, str] = {}
    names: dict[str, Counter[str]] = {}
    rows, removed = 0, {"no customer": 0, "cancelled invoice": 0}
    with unpack.open_stream(raw, max_bytes) as stream, open(target, "w", encoding="utf-8", newline="") as out:
        lines = csv.reader(io.TextIOWrapper(stream, encoding=_encoding(raw, max_bytes), errors="replace", newline=""))
        write = csv.writer(out, lineterminator="\n").writerow
        place = _columns(next(lines, []), raw)
        width = max(place.values()) + 1
        write(["user_id", "item_id", "timestamp"])
        try:
            for fields in lines:
                rows += 1
                if rows % 50_000 == 0:
                    progress("reading invoices", rows, None)
                if len(fields) < width:
                    write(["", "", ""])
                    continue
                user, item, name = fields[place["user"]].strip(), fields[place["item"]].strip(), fields[place["name"]].strip()
                if not user:
                    removed["no customer"] += 1
                elif fields[place["invoice"]].strip().upper().startswith("C"):
                    removed["cancelled invoice"] += 1
                else:
                    write([user, item, _seconds(fields[place["time"]].strip(), times)])
                    if name:
                        names.setdefault(item, Counter())[name] += 1
        except csv.Error as error:
            raise InputError(f"'{raw}' is not a readable CSV near row {rows + 1} ({error})") from None
    return Converted(rows, removed, {item: counts.most_common(1)[0][0] for item, counts in names.items()})


def _columns(header: list[str], raw: Path) -> dict[str, int]:
    found = [name.strip() for name in header]
    place = {}
    for role, names in _NAMES.items():
        name = next((name for name in names if name in found), None)
        if name is None:
            columns = ", ".join(found)[:200] or "none"
            raise InputError(f"'{raw.name}' is not the CSV of Online Retail: it has no column '{names[0]}', but {columns}{nearest(names[0], found)}")
        place[role] = found.index(name)
    return place


def _seconds(text: str, known: dict[str, str]) -> str:
    """Turn a date into seconds since 1970, or nothing where it is none; a whole invoice shares one, so most are known."""
    if text not in known:
        known[text] = ""
        for form in _FORMATS:
            try:
                known[text] = str(int(datetime.strptime(text, form).replace(tzinfo=UTC).timestamp()))
                break
            except ValueError:
                continue
    return known[text]


def _encoding(raw: Path, max_bytes: int) -> str:
    """Tell UTF-8 from the Latin-1 that the file is usually written in."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    with unpack.open_stream(raw, max_bytes) as stream:
        try:
            while block := stream.read(MIB):
                decoder.decode(block)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return "latin-1"
    return "utf-8-sig"
