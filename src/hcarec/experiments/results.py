"""The folder of results: finished runs as small JSON files, what they were made from beside them.

runs/DATA/*.json     one finished run each; the report is made from these
tests/DATA/*.json    paired tests of two methods
attention/DATA.json  the attention weights of one user, and how they behave over all
work/                prepared data, runs under way, figures per user, models; not worth keeping in version control
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hcarec import atomic
from hcarec.errors import ConfigError

if TYPE_CHECKING:
    from hcarec.models import Config

RUNS, TESTS, ATTENTION, WORK = "runs", "tests", "attention", "work"
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
        """Return all finished runs by their key."""
        records = (read_json(path, *_FIELDS) for path in sorted((self.folder / RUNS).glob("*/*.json")))
        return {record["key"]: record for record in records if record.get("schema") == SCHEMA}

    def write(self, data: str, name: str, record: dict[str, Any]) -> None:
        """Write the record of a finished run."""
        write_json(self.folder / RUNS / data / f"{name}.json", record)


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
