"""What all commands share: where they write, how they show progress, how they give JSON."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hcarec.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

PATIENCE = 1.0
"""Seconds that a task may take before its progress is shown."""


def console(stderr: bool = False) -> Console:
    """Return a console; away from a terminal it is plain text of a fixed width. What users write is never taken as markup."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(file=stream, highlight=False, markup=False, soft_wrap=not stream.isatty(), width=None if stream.isatty() else 110)


def emit_json(target: str, value: Any) -> None:
    """Write JSON to a file, or to standard output for '-'."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    if target == "-":
        sys.stdout.write(text)
        return
    from hcarec import atomic

    try:
        atomic.write_bytes(Path(target), text.encode())
    except OSError as error:
        raise ConfigError(f"cannot write '{target}': {error.strerror}") from None


class Bar:
    """A progress bar that appears when a task takes longer than a second, and only on a terminal."""

    def __init__(self, what: str) -> None:
        self._what, self._began = what, time.monotonic()
        self._progress: Any = None
        self._task: Any = None

    def __call__(self, done: int, total: int | None) -> None:
        """Tell how far it is; sizes are bytes."""
        if self._progress is None:
            if not sys.stderr.isatty() or time.monotonic() - self._began < PATIENCE:
                return
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

            self._progress = Progress(
                TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn(), console=console(stderr=True), transient=True
            )
            self._progress.start()
            self._task = self._progress.add_task(self._what, total=total)
        self._progress.update(self._task, completed=done, total=total, description=self._what)

    def named(self, what: str, done: int, total: int | None) -> None:
        """Tell how far a step with a name of its own is."""
        self._what = what
        self(done, total)

    def stop(self) -> None:
        """Remove the bar."""
        if self._progress is not None:
            self._progress.stop()


@contextlib.contextmanager
def bar(what: str) -> Iterator[Bar]:
    """Show a progress bar while the block runs."""
    shown = Bar(what)
    try:
        yield shown
    finally:
        shown.stop()


@contextlib.contextmanager
def working(what: str) -> Iterator[None]:
    """Show a spinner while the block runs, on a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    with console(stderr=True).status(what):
        yield
