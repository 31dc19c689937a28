"""Read typed tables in batches: Parquet and Arrow files, and Polars, pandas and Arrow frames."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from hcarec.config import ReadOptions
from hcarec.data.batches import Batch, Texts, fresh_status
from hcarec.data.columns import find_columns
from hcarec.data.files import InputFile
from hcarec.data.scan import BAD_TIME, MISSING_ITEM, MISSING_TIME, MISSING_USER
from hcarec.errors import InputError

if TYPE_CHECKING:
    import polars as pl

ROWS = 1_000_000


class FrameReader:
    """Batches of one table; `columns` tells which columns were taken."""

    def __init__(self, table: pl.LazyFrame | pl.DataFrame, options: ReadOptions, where: str) -> None:
        self._table = table.lazy()
        self._where = where
        self._time_format = options.time_format
        self.header = _names(self._table, where)
        self.columns = find_columns(self.header, options, where)

    def __iter__(self) -> Iterator[Batch]:
        wanted = self._table.select(list(dict.fromkeys(self.columns.wanted())))
        for first in itertools.count(0, ROWS):
            frame = _collect(wanted.slice(first, ROWS), self._where)
            if frame.height:
                yield self._batch(frame, first + 1)
            if frame.height < ROWS:
                return

    def _batch(self, frame: pl.DataFrame, row: int) -> Batch:
        status = fresh_status(frame.height)
        user = _id_column(frame[self.columns.user], status, MISSING_USER, self._where)
        item = _id_column(frame[self.columns.item], status, MISSING_ITEM, self._where)
        time, unit = _time_column(frame[self.columns.time], status, self._where, self._time_format) if self.columns.time else (None, None)
        event = _texts(_as_string(frame[self.columns.event])) if self.columns.event else None

        def content(n: int) -> str:
            return ",".join("" if value is None else str(value) for value in frame.row(n))

        return Batch(user, item, time, event, status, row, content, time_unit=unit)


def open_table(file: InputFile, stream: BinaryIO, head: bytes) -> pl.LazyFrame:
    """Open a Parquet or Arrow file; one inside a gz, xz or zst stream is unpacked to a temporary file first."""
    import polars as pl

    path = file.path
    with open(path, "rb") as raw:
        packed = raw.read(8) != head
    if packed:
        handle, name = tempfile.mkstemp(suffix=file.ending)
        with os.fdopen(handle, "wb") as out:
            shutil.copyfileobj(stream, out)
        path = Path(name)
    try:
        if head.startswith(b"PAR1"):
            table = pl.scan_parquet(path, glob=False)
        elif head.startswith(b"ARROW1"):
            table = pl.scan_ipc(path, glob=False)
        else:
            table = pl.read_ipc_stream(path).lazy()
        if packed:
            table = table.collect().lazy()
    except Exception as error:
        raise _unreadable(f"'{file.name}'", error) from None
    finally:
        if packed:
            path.unlink(missing_ok=True)
    return table


def from_python(frame: Any) -> pl.DataFrame:
    """Turn a frame of Polars, pandas, Arrow, or anything that speaks Arrow's protocol, into one of Polars."""
    import polars as pl

    if isinstance(frame, pl.DataFrame):
        return frame
    if isinstance(frame, pl.LazyFrame):
        return _collect(frame, "the frame")  # once: run for every batch, a query may give its rows in another order each time
    try:
        return _from_others(frame)
    except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
        raise InputError(f"cannot read events from this {type(frame).__name__} ({str(error).splitlines()[0][:120]}): give columns of one type each") from None


def _from_others(frame: Any) -> pl.DataFrame:
    import polars as pl

    if isinstance(frame, dict):
        return pl.DataFrame(frame)
    if type(frame).__module__.partition(".")[0] == "pandas" and hasattr(frame, "columns"):
        try:
            return pl.from_pandas(frame, include_index=False, nan_to_null=True)
        except ImportError:  # without pyarrow only plain columns can be taken over at once
            return pl.DataFrame({str(name): [None if value != value else value for value in frame[name].tolist()] for name in frame.columns})
    if hasattr(frame, "__arrow_c_stream__") or hasattr(frame, "__arrow_c_array__"):
        return pl.DataFrame(frame)
    raise InputError(f"cannot read events from a {type(frame).__name__}: expected a path, or a Polars, pandas or Arrow frame")


def _names(table: pl.LazyFrame, where: str) -> list[str]:
    try:
        return table.collect_schema().names()
    except Exception as error:
        raise _unreadable(where, error) from None


def _collect(table: pl.LazyFrame, where: str) -> pl.DataFrame:
    try:
        return table.collect()
    except Exception as error:
        raise _unreadable(where, error) from None


def _unreadable(where: str, error: Exception) -> InputError:
    reason = str(error).strip().splitlines()[0][:160] if str(error).strip() else type(error).__name__
    return InputError(f"{where} cannot be read, it is damaged or cut off ({reason}): write or fetch it again")


def _id_column(column: pl.Series, status: np.ndarray, missing: int, where: str) -> Texts:
    import polars as pl

    if column.dtype.is_float():
        # a column of integers that pandas made floats because some were missing
        whole = column.drop_nulls().drop_nans()
        if not (whole == whole.floor()).all() or bool((whole.abs() > 2.0**53).any()):
            raise InputError(f"{where}: column '{column.name}' holds fractions ({column.dtype}): ids must be texts or integers")
        column = column.fill_nan(None).cast(pl.Int64)
    elif not (column.dtype.is_integer() or column.dtype in (pl.String, pl.Categorical, pl.Enum, pl.Binary, pl.Null) or column.dtype.is_decimal()):
        raise InputError(f"{where}: column '{column.name}' is of type {column.dtype}: ids must be texts or integers")
    if column.dtype == pl.Binary:
        status[column.is_null().to_numpy()] = missing
        return Texts.of([None if value is None else value.decode(errors="surrogateescape") for value in column], integer=False)
    integer = column.dtype.is_integer()
    text = _as_string(column)
    status[text.is_null().to_numpy()] = missing
    texts = _texts(text)
    texts.integer = None if integer else False
    return texts


def _time_column(column: pl.Series, status: np.ndarray, where: str, time_format: str | None) -> tuple[Texts | np.ndarray, str | None]:
    import polars as pl

    kind = column.dtype
    if kind.is_integer() and (time_format is not None or _are_days(column)):
        column, kind = column.cast(pl.String), pl.String()
    if kind == pl.String or isinstance(kind, (pl.Categorical, pl.Enum)):
        return _texts(_as_string(column)), None
    status[column.is_null().to_numpy() & (status == 0)] = MISSING_TIME
    if isinstance(kind, pl.Datetime) or kind == pl.Date:
        if isinstance(kind, pl.Datetime) and kind.time_zone is not None:
            column = column.dt.convert_time_zone("UTC")
        return column.dt.epoch("us").fill_null(0).to_numpy(), "us"
    if kind.is_integer():
        narrow = column.cast(pl.Int64, strict=False)  # what does not fit 64 bits becomes null
        status[narrow.is_null().to_numpy() & (status == 0)] = BAD_TIME
        return narrow.fill_null(0).to_numpy(), None
    if kind.is_float() or kind.is_decimal():
        values = column.cast(pl.Float64).fill_null(np.nan).to_numpy()
        finite = np.isfinite(values)
        status[~finite & (status == 0)] = BAD_TIME
        values = np.where(finite, values, 0.0)
        whole = bool((values == np.floor(values)).all() and (np.abs(values) < 2.0**53).all())
        return (values.astype(np.int64) if whole else values), None
    raise InputError(f"{where}: column '{column.name}' is of type {kind}: a time must be a number, a date or a text")


def _are_days(column: pl.Series) -> bool:
    """Say whether integers look like yyyymmdd: as seconds since 1970 these would all lie in a few days of that year."""
    known = column.drop_nulls().head(2000)
    return bool(len(known)) and bool(known.is_between(19000101, 22001231).mean() > 0.5)  # type: ignore[operator]


def _as_string(column: pl.Series) -> pl.Series:
    import polars as pl

    if column.dtype == pl.Binary:
        return pl.Series(column.name, [None if value is None else value.decode(errors="backslashreplace") for value in column], dtype=pl.String)
    return column.cast(pl.String)


def _texts(column: pl.Series) -> Texts:
    """Lay a column of texts out as one buffer."""
    filled = column.fill_null("")
    lengths = filled.str.len_bytes().to_numpy().astype(np.int64)
    ends = np.cumsum(lengths)
    if len(ends) and ends[-1] >= 1 << 31:
        raise InputError(f"column '{column.name}' holds more than 2 GiB of text in a million rows: it cannot be a column of ids")
    joined = filled.str.join("").item().encode() if len(filled) else b""
    return Texts(np.frombuffer(joined, np.uint8), (ends - lengths).astype(np.int32), ends.astype(np.int32))
