"""The folder of results: finished runs, a compressed file for each log, and what is made of them beside it.

runs/DATA.jsonl.xz    the finished runs on a log, a line each; the report is made from these
runs/DATA/*.json      runs that finished since these were packed, a file each
tests/DATA/*.json     paired tests of two methods
attention/DATA.json   the attention weights of one user, and how they behave over all
work/                 prepared data, runs under way, figures per user, models; not worth keeping in version control
"""

from __future__ import annotations

import contextlib
import json
import lzma
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hcarec import atomic
from hcarec.errors import ConfigError

if TYPE_CHECKING:
    from hcarec.models import Config

RUNS, TESTS, ATTENTION, WORK = "runs", "tests", "attention", "work"
PACKED = ".jsonl.xz"
SCHEMA = 1
"""Raised when runs of before can no longer be compared with new ones; those are left alone."""
_FIELDS = ("key", "data", "method", "config", "seed", "selection", "best", "curves", "training_events", "seconds_here", "machine")


@dataclass(frozen=True)
class Results:
    """Where results lie. `first_seed` is the seed whose networks are kept, for the attention experiment."""

    folder: Path
    first_seed: int = 0
    work_folder: Path | None = None

    @property
    def work(self) -> Path:
        return self.work_folder or self.folder / WORK

    @property
    def data(self) -> Path:
        return self.work / "data"

    @property
    def running(self) -> Path:
        return self.work / "running"

    @property
    def users(self) -> Path:
        return self.work / "users"

    @property
    def models(self) -> Path:
        return self.work / "models"

    def make(self) -> None:
        """Make the folders; the work folder keeps itself out of version control."""
        try:
            for path in (self.folder / RUNS, self.data, self.running, self.users, self.models):
                path.mkdir(parents=True, exist_ok=True)
            (self.work / ".gitignore").write_text("*\n")
        except OSError as error:
            raise ConfigError(f"cannot write to '{error.filename or self.folder}': {error.strerror}; give another folder with -o or --work") from None

    def keeps_model(self, config: Config, seed: int) -> bool:
        """Say whether a run's model is kept: networks with attention, of the first seed."""
        from hcarec.models import make

        return seed == self.first_seed and make(**config.as_dict()).has_attention

    def read(self) -> dict[str, dict[str, Any]]:
        """Return all finished runs by their key, log by log."""
        records: dict[str, dict[str, Any]] = {}
        for name in self._logs():
            records |= {record["key"]: record for record in self._of_log(name)}
        return {key: record for key, record in records.items() if record.get("schema") == SCHEMA}

    def write(self, data: str, record: dict[str, Any]) -> None:
        """Write the record of a finished run, to stay even if the machine stops the moment after."""
        write_json(self.folder / RUNS / data / f"{file_name(record)}.json", record)

    def pack(self) -> None:
        """Put the runs of every log that lie in files of their own into its one file.

        A kill in between loses nothing: a file is removed once its run is in the packed one, and a run in both counts once.
        """
        for name in self._logs():
            singles = self._singles(name)
            if not singles:
                continue
            _write_lines(self._packed(name), self._of_log(name))
            for path in singles:
                path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # something else may lie there
                (self.folder / RUNS / name).rmdir()

    def _logs(self) -> list[str]:
        """Return the names of the logs that have runs."""
        folder = self.folder / RUNS
        packed = {path.name.removesuffix(PACKED) for path in folder.glob(f"*{PACKED}")}
        return sorted(packed | {path.parent.name for path in folder.glob("*/*.json")})

    def _packed(self, name: str) -> Path:
        return self.folder / RUNS / f"{name}{PACKED}"

    def _singles(self, name: str) -> list[Path]:
        return sorted((self.folder / RUNS / name).glob("*.json"))

    def _of_log(self, name: str) -> list[dict[str, Any]]:
        """Return all runs on a log, in the order of their names."""
        packed = self._packed(name)
        records = [read_json(path, *_FIELDS) for path in self._singles(name)]
        records += _read_lines(packed) if packed.exists() else []
        return sorted({record["key"]: record for record in records}.values(), key=file_name)


def file_name(record: Mapping[str, Any]) -> str:
    """Return a name for a run, for people and for files."""
    return f"{record['method']}.{record['selection']}.seed-{record['seed']}.{record['key'][:8]}"


def _read_lines(path: Path) -> list[dict[str, Any]]:
    """Read packed runs."""
    try:
        records = [json.loads(line) for line in lzma.decompress(path.read_bytes()).decode().splitlines()]
    except (OSError, lzma.LZMAError, ValueError, RecursionError):
        records = [None]
    if not all(isinstance(record, dict) and record.keys() >= set(_FIELDS) for record in records):
        raise ConfigError(f"'{path}' is damaged, or was not written by hcarec: restore it, or remove it and the same command does its runs again")
    return records


def _write_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write packed runs, the same bytes for the same runs: nothing in them tells the time."""
    lines = "".join(json.dumps(record, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n" for record in records)
    try:
        atomic.write_bytes(path, lzma.compress(lines.encode()))
    except OSError as error:
        raise ConfigError(f"cannot write '{path}': {error.strerror}; what was finished before is kept") from None


def read_json(path: Path, *fields: str) -> dict[str, Any]:
    """Read a JSON file of ours, an object with at least these fields."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read '{path}': {error.strerror}") from None
    except (ValueError, RecursionError):
        raise ConfigError(f"'{path}' is not JSON: it is damaged; remove it, and the same command makes it again") from None
    if not isinstance(found, dict) or not found.keys() >= set(fields):
        raise ConfigError(f"'{path}' was not written by hcarec, or is damaged: remove it, and the same command makes it again")
    return found


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file that appears whole or not at all; lists of numbers stay on one line."""
    fields = [f" {json.dumps(name)}: {_inner(entry)}" for name, entry in value.items()]
    try:
        atomic.write_bytes(path, ("{\n" + ",\n".join(fields) + "\n}\n").encode())
    except OSError as error:
        raise ConfigError(f"cannot write '{path}': {error.strerror}; what was finished before is kept") from None


def _inner(entry: Any) -> str:
    if isinstance(entry, dict) and len(entry) > 1:
        return "{\n" + ",\n".join(f"  {json.dumps(name)}: {json.dumps(value, ensure_ascii=False, allow_nan=False)}" for name, value in entry.items()) + "\n }"
    return json.dumps(entry, ensure_ascii=False, allow_nan=False)
