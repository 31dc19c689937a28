"""Join the records of trials that ran in several places."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hcarec import atomic
from hcarec.errors import ConfigError
from hcarec.experiments.data_sets import FILE, noted_statistics
from hcarec.experiments.grid import alone
from hcarec.experiments.results import Results, write_json
from hcarec.experiments.trials.study import FOLDER, trial_results
from hcarec.experiments.trials.trial import ranks_file

Record = dict[str, Any]


def merge(results: Results, folders: Sequence[Path]) -> int:
    """Take over the records of other folders of results, and their ranks; return how many are new.

    Ranks of a record that is here already are taken over where they are missing. All is checked
    before anything is written: records of one log must be of the same data and protocol, and those
    of one method on it of the same settings.
    """
    sources = [_source(folder) for folder in folders]
    results.make()
    with alone(results):
        return _merge(results, sources)


def _merge(results: Results, sources: Sequence[Results]) -> int:
    logs, known = noted_statistics(results), results.read()
    fresh: dict[str, tuple[Results, Record]] = {}
    for source in sources:
        for name, log in noted_statistics(source).items():
            _check_data(name, logs.setdefault(name, log), log, source)
        found = source.read()
        if not found:
            raise ConfigError(
                f"'{source.folder.parent}' holds no finished run: leave it out, or finish one there"
            )
        for key, record in found.items():
            if key not in known:
                peers = [*known.values(), *(other for _, other in fresh.values())]
                _check_record(record, peers, logs, source)
                fresh[key] = source, record
    write_json(results.folder / FILE, logs)
    for source in sources:
        for key in source.read():
            ranks, here = ranks_file(source, key), ranks_file(results, key)
            if ranks.exists() and not here.exists():
                atomic.write_bytes(here, ranks.read_bytes())
    for _, record in fresh.values():
        results.write(record["data"]["name"], record)
    results.pack()
    return len(fresh)


def _source(folder: Path) -> Results:
    source = trial_results(folder)
    if not source.folder.is_dir():
        raise ConfigError(
            f"'{folder}' holds no records of a contest (no {FOLDER}/): give a folder that"
            " 'hcarec experiment contest -o' has written"
        )
    return source


def _check_data(name: str, ours: Record, theirs: Record, source: Results) -> None:
    if ours["fingerprint"] != theirs["fingerprint"]:
        raise _differs(
            source, f"its log '{name}'", "data", ours["fingerprint"], theirs["fingerprint"]
        )


def _check_record(
    record: Record, peers: Iterable[Record], logs: dict[str, Record], source: Results
) -> None:
    """Refuse a record that cannot stand beside those that there are."""
    name, method = record["data"]["name"], record["method"]
    what = f"{method} on '{name}'"
    data = record["data"]["fingerprint"]
    if name in logs and logs[name]["fingerprint"] != data:
        raise _differs(source, what, "data", logs[name]["fingerprint"], data)
    for peer in peers:
        if peer["data"]["name"] != name:
            continue
        for rule, protocol in record["protocols"].items():
            if peer["protocols"][rule] != protocol:
                ours = peer["protocols"][rule]
                raise _differs(source, what, f"protocol under {rule}", ours, protocol)
        if peer["method"] == method:
            _check_settings(record, peer, what, source)


def _check_settings(record: Record, peer: Record, what: str, source: Results) -> None:
    ours, theirs = peer["config"], record["config"]
    for setting in sorted({*ours, *theirs}):
        if ours.get(setting) != theirs.get(setting):
            raise _differs(source, what, setting, ours.get(setting), theirs.get(setting))


def _differs(source: Results, what: str, setting: str, ours: Any, theirs: Any) -> ConfigError:
    shown = [value[:12] if isinstance(value, str) else value for value in (theirs, ours)]
    return ConfigError(
        f"cannot merge '{source.folder.parent}': of {what} the {setting} is {shown[0]!r} there and"
        f" {shown[1]!r} here; results of two kinds are not put side by side, so merge into"
        " another folder"
    )
