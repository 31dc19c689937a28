"""From a raw log to `Sequences`: read, order, clean, number, write."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hcarec import atomic
from hcarec.config import TIME_UNITS, Filters, ReadOptions, seconds
from hcarec.data import sources
from hcarec.data.clean import Cleaning, clean
from hcarec.data.order import Log, cut_into_visits, in_order, tied
from hcarec.data.read import Events, Progress, read_events
from hcarec.data.synthetic import synthetic
from hcarec.data.titles import as_titles
from hcarec.errors import ConfigError, DataError, InputError, nearest
from hcarec.ids import Ids
from hcarec.sequences import Sequences, check_replaceable, is_prepared


def prepare(
    source: Any,
    out: str | Path | None = None,
    *,
    raw: str | Path | None = None,
    titles: str | Path | Mapping[str, str] | None = None,
    strict: bool = False,
    progress: Progress | None = None,
    download_progress: Any = None,
    **settings: Any,
) -> Sequences:
    """Turn a log into `Sequences`, and write them into the folder `out` if one is given.

    `source` is a file, a folder, a glob, a frame (Polars, pandas, Arrow), `Events`, or the name of a known data set,
    with `raw` pointing at the user's own copy of its file. `titles` names the items, by a file (whose other columns are kept) or a dict. `settings`
    are fields of `ReadOptions` and `Filters`; what is not given is as the known data set asks, or nothing is filtered.
    """
    if out is not None:
        check_replaceable(Path(out))
    options, filters, about = ReadOptions(), Filters(), {"name": _name_of(source)}
    if isinstance(source, str) and _is_known(source):
        known = sources.find(source)
        if known.generated:
            if raw is not None or titles is not None:
                raise ConfigError(f"'{known.name}' is made here: it takes no --raw and no --titles")
            return _generated(out, settings)
        obtained = sources.obtain(known, Path(raw) if raw else None, progress=download_progress)
        source, options, filters, about = obtained.paths, obtained.options, obtained.filters, obtained.about
        titles = titles or obtained.titles
    elif raw is not None:
        raise ConfigError("--raw goes with the name of a known data set; give a plain file as INPUT")
    elif isinstance(source, (str, Path)) and not str(source):
        raise InputError("INPUT is empty: expected a file, a folder, a glob or a known name")
    elif isinstance(source, (str, Path)) and is_prepared(Path(source)):
        raise InputError(f"'{source}' is a prepared data set already: give the raw log as INPUT")
    elif isinstance(source, str) and not os.path.exists(source) and (hint := nearest(source, sources.known())):
        raise InputError(f"'{source}' is neither a file nor a known data set{hint}")
    read_settings, filter_settings = _settings(settings)
    options, filters = dataclasses.replace(options, **read_settings), dataclasses.replace(filters, **filter_settings)
    names = as_titles(titles)
    with _folder(Path(out)) if out is not None else contextlib.nullcontext() as work:
        events = source if isinstance(source, Events) else read_events(source, options, strict=strict, quarantine=work, progress=progress)
        data = build(events, filters, {"source": about})
        if names is not None and any(names):
            data = data.with_titles(names.titles, names.fields)
        if work is not None:
            data.write_into(work)
    return data if out is None else Sequences.open(out)


def build(events: Events, filters: Filters, about: dict[str, Any] | None = None) -> Sequences:
    """Order, clean and number events."""
    log, user_ids = in_order(events), events.user_ids
    if filters.session_gap is not None:
        if log.times is None:
            raise ConfigError("--session-gap needs a time column, and the log has none: name it with --time-col, or leave it out")
        log, user_ids = cut_into_visits(log, user_ids, seconds(filters.session_gap) * TIME_UNITS[events.time_unit or "s"])
    cleaning = clean(log, filters, len(events.item_ids), events.time_unit)
    before = (about or {}).get("source", {}).get("removed", {})
    items, item_ids = _number(log.items, events.item_ids)
    kept = np.flatnonzero(log.lengths)
    report = _report(events, before, cleaning, log) | {"users": len(kept), "items": len(item_ids)}
    if len(log.items) == 0:
        raise InputError(f"no event is left: {_losses(report)}")
    about = {
        **(about or {}),
        "columns": {role: name for role, name in dataclasses.asdict(events.columns).items() if name is not None},
        "time_kind": events.time_kind,
        "filters": {name: value for name, value in dataclasses.asdict(filters).items() if value != getattr(Filters(), name)},
        "report": report,
    }
    offsets = np.append(log.offsets[:-1][kept], log.offsets[-1])
    user_ids = user_ids if len(kept) == len(user_ids) else user_ids.take(kept)
    return Sequences(items, offsets, user_ids, item_ids, log.times, events.time_unit, None, about)


def _number(items: np.ndarray, item_ids: Ids) -> tuple[np.ndarray, Ids]:
    """Renumber items so that only those with an event are left, in order of first appearance in the log."""
    present = np.bincount(items, minlength=len(item_ids)) > 0
    if present.all():
        return items, item_ids
    new = np.cumsum(present, dtype=np.int32) - np.int32(1)
    return new[items], item_ids.take(np.flatnonzero(present))


def _report(events: Events, removed_before: dict[str, int], cleaning: Cleaning, log: Log) -> dict[str, Any]:
    """Account for every row; `removed_before` are those that a known data set leaves out of its raw file."""
    rows = events.rows + sum(removed_before.values())
    quarantined = sum(events.quarantined.values())
    dropped = {name: dataclasses.asdict(removed) for name, removed in cleaning.removed.items()}
    if events.other_events:
        dropped = {"events": {"what": "other event types", "events": events.other_events, "users": 0, "items": 0}, **dropped}
    dropped = {reason: {"what": reason, "events": count, "users": 0, "items": 0} for reason, count in removed_before.items()} | dropped
    kept = len(log.items)
    gone = sum(entry["events"] for entry in dropped.values())
    if rows != kept + gone + quarantined:
        raise AssertionError(f"{rows} rows in, but {kept} kept + {gone} dropped + {quarantined} quarantined")
    return {
        "rows": rows,
        "kept": kept,
        "dropped": dropped,
        "quarantined": {"rows": quarantined, "reasons": events.quarantined},
        "rounds": cleaning.rounds,
        "ties": {"events": (ties := tied(log)), "share": ties / kept if kept else 0.0},
        "blank_lines": events.blank_lines,
        "files": len(events.files),
        "empty_files": events.empty_files,
    }


def _losses(report: dict[str, Any]) -> str:
    parts = [f"{report['rows']:,} rows in"]
    parts += [f"{entry['events']:,} dropped ({entry['what']})" for entry in report["dropped"].values() if entry["events"]]
    parts += [f"{count:,} quarantined ({reason})" for reason, count in report["quarantined"]["reasons"].items()]
    return ", ".join(parts) + "; loosen the filters or mend the rows"


def _name_of(source: Any) -> str:
    if isinstance(source, list):
        return ", ".join(os.path.basename(str(one)) for one in source[:3])
    return os.path.basename(os.path.abspath(source)) if isinstance(source, (str, Path)) else type(source).__name__


def _is_known(name: str) -> bool:
    """Say whether an input is the name of a known data set; a folder of that name is written ./name."""
    return name in sources.known() or (name.startswith("amazon-") and not os.path.exists(name))


def _settings(given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Sort settings into those of reading and those of filtering."""
    reading, filtering = ({field.name for field in dataclasses.fields(kind)} for kind in (ReadOptions, Filters))
    for name in given:
        if name not in reading | filtering:
            raise ConfigError(f"prepare has no setting '{name}'{nearest(name, reading | filtering)}")
    return {name: value for name, value in given.items() if name in reading}, {name: value for name, value in given.items() if name in filtering}


def _generated(out: str | Path | None, knobs: dict[str, Any]) -> Sequences:
    """Make the synthetic log; its settings are the knobs of the generator."""
    known = list(inspect.signature(synthetic).parameters)
    for name in knobs:
        if name not in known:
            raise ConfigError(f"the synthetic log has no knob '{name}': its knobs are {', '.join(known)}{nearest(name, known)}")
    try:
        data = synthetic(**knobs)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"a knob of the synthetic log has a value that it cannot take ({error})") from None
    if out is None:
        return data
    with _folder(Path(out)) as work:
        data.write_into(work)
    return Sequences.open(out)


@contextlib.contextmanager
def _folder(target: Path) -> Any:
    """Open the output folder; a disk that is full or not writable is one clear line."""
    try:
        with atomic.folder(target) as work:
            yield work
    except OSError as error:
        raise DataError(f"cannot write '{target}': {error.strerror or error}; nothing was changed there") from None
