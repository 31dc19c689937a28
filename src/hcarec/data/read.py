"""Read an event log of any format into numbered users, items and times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from hcarec.config import ReadOptions
from hcarec.data.batches import Batch, Texts
from hcarec.data.columns import Columns
from hcarec.data.encode import Encoder
from hcarec.data.files import InputFile, find_files, open_file
from hcarec.data.numbers import join
from hcarec.data.quarantine import Quarantine
from hcarec.data.read_frame import FrameReader, from_python, open_table
from hcarec.data.read_json import JsonReader, looks_like_json
from hcarec.data.read_text import EmptyFile, TextReader
from hcarec.data.scan import BAD_TIME, MISSING_ITEM, MISSING_USER, OK, check_ids, is_plain
from hcarec.data.times import TimeFormat, detect, judge_unit
from hcarec.errors import InputError
from hcarec.ids import Ids

Progress = Callable[[int, int], None]
"""Told of bytes done and bytes in all."""


@dataclass
class Events:
    """A log as read: row by row, in file order, nothing filtered but the event types.

    `user`, `item` (n,) int32 into the id tables; `times` (n,) int64 or float64 in `time_unit`, or None.
    `rows` = rows read; of these `quarantined` could not be used (by reason) and `other_events` were of a type not asked for.
    """

    user: np.ndarray
    item: np.ndarray
    times: np.ndarray | None
    time_unit: str | None
    time_kind: str | None
    user_ids: Ids
    item_ids: Ids
    columns: Columns
    rows: int
    blank_lines: int = 0
    other_events: int = 0
    quarantined: dict[str, int] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    empty_files: list[str] = field(default_factory=list)


def read_events(
    source: Any, options: ReadOptions | None = None, *, strict: bool = False, quarantine: Path | None = None, progress: Progress | None = None
) -> Events:
    """Read events from a path (file, folder, glob), several paths, or a frame; bad rows are counted, and written into `quarantine`."""
    options = options or ReadOptions()
    aside = Quarantine(quarantine, strict)
    collector = _Collector(options, aside)
    try:
        with ThreadPoolExecutor(2) as pool:
            if isinstance(source, (str, Path)):
                collector.read_files(find_files(source), pool, progress)
            elif isinstance(source, list) and all(isinstance(one, (str, Path)) for one in source):
                collector.read_files([file for one in source for file in find_files(one)], pool, progress)
            else:
                collector.read_all(FrameReader(from_python(source), options, "the frame"), "frame", pool)
        return collector.events()
    finally:
        aside.close()


class _Collector:
    """Encode batches as they come; users and items are numbered at the same time on two threads."""

    def __init__(self, options: ReadOptions, aside: Quarantine) -> None:
        self._options, self._aside = options, aside
        self._users, self._items, self._kinds = Encoder(), Encoder(), Encoder()
        self._columns: Columns | None = None
        self._format: TimeFormat | None = TimeFormat(options.time_format) if options.time_format else None
        self._unit = options.time_unit
        self._dated: bool | None = None
        self._parts: list[tuple[np.ndarray, np.ndarray, np.ndarray | None]] = []
        self._rows = self._blank = self._other = 0
        self._files: list[str] = []
        self._empty: list[str] = []

    def read_files(self, files: list[InputFile], pool: ThreadPoolExecutor, progress: Progress | None) -> None:
        total = sum(file.size for file in files)
        before = 0
        for file in files:
            with open_file(file) as (stream, raw):
                told = (lambda: progress(before + raw.tell(), total)) if progress else None  # noqa: B023
                try:
                    self.read_all(_open_reader(file, stream, raw, self._options), file.name, pool, told)
                    self._files.append(file.name)
                except EmptyFile:
                    if len(files) == 1:
                        raise
                    self._empty.append(file.name)
            before += file.size

    def read_all(self, reader: Any, name: str, pool: ThreadPoolExecutor, told: Callable[[], None] | None = None) -> None:
        if self._columns is None:
            self._columns = reader.columns
        elif (reader.columns.time is None) != (self._columns.time is None):
            raise InputError(
                f"'{name}' {'has no' if reader.columns.time is None else 'has a'} time column, unlike the files before: give --time-col, or prepare them apart"
            )
        running: list[Future[np.ndarray]] = []
        times: np.ndarray | None = None
        whole = True
        good = bad_times = 0
        for batch in _checked(reader):
            batch_times = self._times(batch, reader.columns)
            self._aside.take(batch, name)
            good += int((batch.status == OK).sum())
            bad_times += int((batch.status == BAD_TIME).sum())
            self._rows += len(batch)
            self._blank += batch.blank_lines
            self._keep_wanted_kinds(batch)
            self._store(running, times, whole)
            running = [pool.submit(self._users.encode, batch.user.text, batch.user.starts, batch.user.ends, batch.status, batch.user.integer),
                       pool.submit(self._items.encode, batch.item.text, batch.item.starts, batch.item.ends, batch.status, batch.item.integer)]  # fmt: skip
            whole = not batch.status.any()
            times = batch_times if batch_times is None or whole else batch_times[batch.status == OK]
            if told:
                told()
        self._store(running, times, whole)
        if self._files and bad_times and not good and self._format is not None:
            raise InputError(
                f"no time in '{name}' can be read as {self._format.kind}, as in the files before it: bring them to one form, or prepare them apart"
            )

    def _store(self, running: list[Future[np.ndarray]], times: np.ndarray | None, whole: bool) -> None:
        """Wait for a batch to be encoded, and keep its good rows; in a `whole` one all are."""
        if running:
            user, item = (future.result() for future in running)
            self._parts.append((user, item, times) if whole else (user[user >= 0], item[item >= 0], times))

    def _times(self, batch: Batch, columns: Columns) -> np.ndarray | None:
        if batch.time is None:
            return None
        if isinstance(batch.time, Texts):
            texts = batch.time
            if self._format is None:
                self._format = detect(texts.text, texts.starts, texts.ends, batch.status, str(columns.time))
            times, unit = self._format.parse(texts.text, texts.starts, texts.ends, batch.status), self._format.unit
        else:
            times, unit = batch.time, batch.time_unit
        if self._dated is None:
            self._dated = unit is not None
            self._unit = unit or self._unit
        elif self._dated != (unit is not None):
            raise InputError(f"column '{columns.time}' mixes dates and numbers: bring them to one form")
        return times

    def _keep_wanted_kinds(self, batch: Batch) -> None:
        """Mark rows of event types not asked for with a status of their own, so that they are not encoded."""
        if batch.event is None or not self._options.events:
            return
        codes = self._kinds.encode(batch.event.text, batch.event.starts, batch.event.ends, batch.status)
        names = list(self._kinds.ids().texts())
        unwanted = np.array([name not in self._options.events for name in names] or [False])
        other = (codes >= 0) & unwanted[codes]
        batch.status[other] = 255
        self._other += int(other.sum())

    def events(self) -> Events:
        if self._columns is None or self._rows == 0:
            raise InputError("the input has a header but no rows: expected at least one event" if self._columns else "every file of the input is empty")
        user, item = (np.concatenate([part[k] for part in self._parts]) for k in (0, 1))
        times = join([part[2] for part in self._parts if part[2] is not None]) if self._columns.time else None
        if self._options.events and len(user) == 0 and self._other:
            raise InputError(f"no event is of type {' or '.join(self._options.events)}; the types are {', '.join(list(self._kinds.ids().texts())[:10])}")
        unit = None if times is None else self._unit or judge_unit(times[:: max(1, len(times) // 100_000)])
        return Events(
            user, item, times, unit, self._format.kind if self._format and times is not None else None,
            self._users.ids(), self._items.ids(), self._columns, self._rows, self._blank, self._other, dict(self._aside.counts), self._files, self._empty,
        )  # fmt: skip


def _open_reader(file: InputFile, stream: BinaryIO, raw: BinaryIO, options: ReadOptions) -> Any:
    head = stream.read(8)
    stream.seek(0)
    if not head:
        raise EmptyFile(file.name)
    if head.startswith((b"PAR1", b"ARROW1", b"\xff\xff\xff\xff")):
        return FrameReader(open_table(file, stream, head), options, f"'{file.name}'")
    if file.ending in (".parquet", ".pq", ".arrow", ".feather", ".ipc"):
        raise InputError(f"'{file.name}' is not a {file.ending[1:]} file, its beginning is wrong: it is damaged, or named wrongly")
    if looks_like_json(head) or file.ending in (".jsonl", ".ndjson", ".json"):
        return JsonReader(file, stream, options)
    return TextReader(file, stream, options)


def _checked(reader: Any) -> Iterator[Batch]:
    """Yield batches with rows marked whose ids cannot be used."""
    for batch in reader:
        for column, missing in ((batch.user, MISSING_USER), (batch.item, MISSING_ITEM), (batch.event, OK)):
            if column is not None:
                check_ids(column.text, column.starts, column.ends, batch.status, missing, is_plain(column.text))
        yield batch
