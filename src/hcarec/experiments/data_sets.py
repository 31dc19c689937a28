"""The data sets of an experiment: from `name=RAW` to prepared logs, and their statistics (the paper's Table 3)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hcarec.errors import ConfigError
from hcarec.experiments.results import Results, read_json, write_json
from hcarec.experiments.run import DataSet

if TYPE_CHECKING:
    import polars as pl

FILE = "datasets.json"
_COUNTS = ("users", "items", "events", "mean_length", "sparsity")


def prepare_all(
    sources: Mapping[str, str | Path],
    results: Results,
    titles: Mapping[str, str | Path] | None = None,
    progress: Any = None,
    note: bool = True,
    least_events: int = 0,
    **filters: Any,
) -> list[DataSet]:
    """Open or prepare every data set, and note their statistics; one that is prepared already is taken as it is.

    A source is a folder made by `prepare`, a raw file (the names `taobao` and `outbrain` bring the paper's format and filters along), or the
    name of a known data set. `filters` are settings of `prepare` for raw files. Users with fewer than `least_events` are left out of raw files, and a
    folder that has some is refused. Without `note` nothing is written but what raw files are prepared to.
    """
    if note:
        results.make()
    unknown = sorted(set(titles or {}) - set(sources))
    if unknown:
        raise ConfigError(f"titles are given for '{unknown[0]}', which is not among the data sets: {', '.join(sources)}")
    found = [_one(name, sources[name], results, (titles or {}).get(name), progress, filters, least_events) for name in sources]
    if not note:
        return found
    write_json(results.folder / FILE, noted_statistics(results) | statistics_of(found, results))
    return found


def statistics_of(data: Sequence[DataSet], results: Results) -> dict[str, Any]:
    """Return the statistics of some data sets by name: those that are noted, and of a log that is not, counted now."""
    noted = noted_statistics(results)
    return {one.name: noted[one.name] if noted.get(one.name, {}).get("fingerprint") == one.fingerprint else _statistics(one) for one in data}


def noted_statistics(results: Results) -> dict[str, Any]:
    """Return the statistics of all data sets that results were made from."""
    path = results.folder / FILE
    noted = read_json(path) if path.exists() else {}
    if not all(isinstance(one, dict) and one.keys() >= {"fingerprint", "repeats", "filters", *_COUNTS} for one in noted.values()):
        raise ConfigError(f"'{path}' was not written by hcarec, or is damaged: remove it, and the same command makes it again")
    return noted


def frame(noted: Mapping[str, Mapping[str, Any]]) -> pl.DataFrame:
    """Return the statistics as a frame: a row per data set."""
    import polars as pl

    names = (*_COUNTS, "repeats", "fingerprint")
    return pl.DataFrame([{"data": name, **{key: entry[key] for key in names}} for name, entry in noted.items()])


def _one(name: str, source: str | Path, results: Results, titles: str | Path | None, progress: Any, filters: dict[str, Any], least_events: int) -> DataSet:
    from hcarec.sequences import is_prepared

    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise ConfigError(f"'{name}' cannot name a data set: use letters, digits, '.', '_' and '-', as in --data shop=log.csv")
    path = Path(source)
    if is_prepared(path):
        if filters:
            raise ConfigError(f"'{source}' is prepared already, so {', '.join(sorted(filters))} cannot be applied: give the raw log, or prepare it with them")
        return _described(name, path, least_events)
    from hcarec.data import sources as known_sources  # these need more than a machine that is lent may have
    from hcarec.data.prepare import prepare

    if least_events:
        filters = {**filters, "min_user_events": max(least_events, filters.get("min_user_events", 0))}
    target = results.data / name
    made_from = {"source": _stamp(path) or str(source), "titles": _stamp(Path(titles)) if titles else None, "filters": filters}
    marker = results.data / f"{name}.json"
    if not (is_prepared(target) and marker.exists() and read_json(marker) == made_from):
        known = name in known_sources.known() and path.exists()
        given: Any = name if known else str(source)
        prepare(given, target, raw=path if known else None, titles=titles, progress=progress, **filters)
        write_json(marker, made_from)
    return _described(name, target, least_events)


def _stamp(path: Path) -> list[Any]:
    """Return the files of a raw log with their sizes and times, so that a log that has changed is prepared again; nothing for a known name."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return [[str(file.resolve()), (stat := file.stat()).st_size, stat.st_mtime_ns] for file in files if file.is_file()]


def _described(name: str, path: Path, least_events: int) -> DataSet:
    from hcarec.sequences import Sequences

    data = Sequences.open(path)
    few = int((data.lengths < least_events).sum())
    if few:
        raise ConfigError(
            f"'{path}' has users with fewer than {least_events} events ({few:,} of them), which this experiment leaves out: "
            f"give the raw log, or prepare it with --min-user-events {least_events}"
        )
    return DataSet(name, path.resolve(), data.fingerprint, data.n_users, data.n_items, data.n_events)


def _statistics(one: DataSet) -> dict[str, Any]:
    from hcarec.data.statistics import statistics
    from hcarec.sequences import Sequences

    data = Sequences.open(one.path)
    found = statistics(data)
    figures = {"users": found.users, "items": found.items, "events": found.events, "mean_length": found.mean_length, "sparsity": found.sparsity}
    lengths = {str(percent): found.lengths.quantile(percent) for percent in (10, 50, 90)}
    about = {"filters": data.about.get("filters", {}), "titles": data.titles is not None}
    return {"fingerprint": data.fingerprint, **figures, "repeats": found.repeats, "lengths": lengths, "popularity_gini": found.popularity.gini(), **about}
