"""Many runs: all cores, each run done once, killed at any time and continued."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import multiprocessing.connection
import os
import queue
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from hcarec.errors import ConfigError, HcarecError
from hcarec.experiments.results import Results
from hcarec.parallel import cores
from hcarec.processes import safe_import_path
from hcarec.training import Callback


class Run(Protocol):
    """What a grid is made of: a key that says whether it was done, and the doing."""

    @property
    def key(self) -> str:
        """Return a hash of everything that decides the figures."""

    def seconds(self, records: Sequence[dict[str, Any]]) -> float:
        """Estimate the seconds that the run takes, from earlier runs where there are any like it."""

    def perform(self, results: Results, callback: Callback) -> dict[str, Any] | None:
        """Do the run, going on where an earlier attempt stopped; write its record, or return None where it was ended early."""


AnyRun = TypeVar("AnyRun", bound=Run)


@dataclass
class Standing:
    """How far a grid is: runs in all, done before, done now, failed, and of each run under way the share of its epochs."""

    runs: Sequence[Run]
    found: int = 0
    done: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)
    under_way: dict[str, float] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    stopped: bool = False
    out_of_time: bool = False

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began


def missing(runs: Sequence[AnyRun], results: Results) -> list[AnyRun]:
    """Return the runs that have no record yet, each once."""
    finished = results.read()
    return list({run.key: run for run in runs if run.key not in finished}.values())


def go(
    runs: Sequence[Run],
    results: Results,
    *,
    workers: int | None = None,
    told: Callable[[Standing], None] | None = None,
    minutes: float | None = None,
) -> Standing:
    """Do what is missing of `runs`, in their order, one process each (a single worker stays in this process); return what became of them.

    A run that fails is told at the end and stops no other. Ctrl-C, or the end of the
    `minutes`, lets every run write its checkpoint; the next call goes on there.
    """
    deadline = math.inf if minutes is None else time.time() + 60 * minutes
    results.make()
    with alone(results), safe_import_path():
        try:
            standing = _go(runs, results, workers, told or (lambda standing: None), deadline)
            standing.out_of_time = standing.stopped and time.time() >= deadline
            return standing
        finally:
            results.pack()


def _go(runs: Sequence[Run], results: Results, workers: int | None, told: Callable[[Standing], None], deadline: float) -> Standing:
    todo = missing(runs, results)
    standing = Standing(todo, found=len({run.key for run in runs}) - len(todo))
    told(standing)
    if not todo:
        return standing
    workers = max(1, min(len(todo), workers or cores()))
    if workers == 1:
        _here(todo, results, standing, told, deadline)
        return standing
    context = multiprocessing.get_context("spawn")
    messages, stopping = context.Queue(), context.Event()
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_begin_worker, initargs=(messages, stopping, deadline)) as pool:
        waiting: dict[Future[bool], Run] = {pool.submit(_one, run, results): run for run in todo}
        before = signal.getsignal(signal.SIGINT)
        try:
            _follow(waiting, results, messages, standing, told)
        except KeyboardInterrupt:
            standing.stopped = True
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the runs have heard it too, and are writing their checkpoints
            stopping.set()
            pool.shutdown(cancel_futures=True)
        except BrokenProcessPool:
            raise HcarecError(
                "a run was killed (out of memory?): what is finished is kept; run the same command again to go on, with fewer --workers"
            ) from None
        except BaseException:
            pool.shutdown(cancel_futures=True)  # or the pool would do all the rest before anyone hears of it
            raise
        finally:
            signal.signal(signal.SIGINT, before)
    return standing


def _follow(waiting: dict[Future[bool], Run], results: Results, messages: Any, standing: Standing, told: Callable[[Standing], None]) -> None:
    while waiting:
        for future in wait(waiting, timeout=0.3, return_when=FIRST_COMPLETED).done:
            run = waiting.pop(future)
            standing.under_way.pop(run.key, None)
            try:
                if future.result():
                    standing.done.add(run.key)
                else:
                    raise KeyboardInterrupt
            except BrokenProcessPool:
                raise
            except Exception as error:  # whatever it is, it ends no other run
                standing.failed[run.key] = _failure(run, results, error)
        try:
            while True:
                key, share = messages.get_nowait()
                if key not in standing.done:
                    standing.under_way[key] = share
        except queue.Empty:
            told(standing)


def _here(todo: Sequence[Run], results: Results, standing: Standing, told: Callable[[Standing], None], deadline: float) -> None:
    """Do one run after the other in this very process, which needs no guard in a script."""

    def hear(message: tuple[str, float]) -> None:
        standing.under_way = dict([message])
        told(standing)

    for run in todo:
        try:
            if time.time() >= deadline or run.perform(results, _Reporter(run.key, hear, deadline)) is None:
                standing.stopped = True
                return
            standing.done.add(run.key)
        except Exception as error:  # whatever it is, it ends no other run
            standing.failed[run.key] = _failure(run, results, error)
        standing.under_way = {}
        told(standing)


def _failure(run: Run, results: Results, error: Exception) -> str:
    """Say in a line why a run failed; the traceback of an error of our own making is kept in a file."""
    if isinstance(error, HcarecError):
        return f"{run}: {error}"
    path = results.work / f"failed-{run.key}.txt"
    path.write_text("".join(traceback.format_exception(error)))
    return f"{run}: {type(error).__name__}: {error}; '{path}' says where"


class _Reporter(Callback):
    """Tell which share of its epochs a run has done, and end it when its time is up."""

    def __init__(self, key: str, tell: Callable[[tuple[str, float]], None], deadline: float) -> None:
        self._key, self._epochs, self._tell, self._deadline = key, 1, tell, deadline

    def planned(self, planned: Any, config: Any, resumed_at: int | None) -> None:
        self._epochs = max(1, config.epochs)
        self._tell((self._key, (resumed_at or 0) / self._epochs))

    def epoch(self, record: dict[str, Any], best: bool) -> None:
        self._tell((self._key, record["epoch"] / self._epochs))

    def stops(self) -> bool:
        return time.time() >= self._deadline


_messages: Any = None
"""Where a worker tells how far its run is."""
_stopping: Any = None
"""Set by Ctrl-C: runs that a worker has been handed already are not begun any more."""
_deadline = math.inf
"""When the grid is to end, in seconds since the epoch."""


def _begin_worker(messages: Any, stopping: Any, deadline: float) -> None:
    """Leave Ctrl-C between runs to the process that began this one (a run has its own handler), and end with that process, however it ends."""
    global _messages, _stopping, _deadline
    _messages, _stopping, _deadline = messages, stopping, deadline
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)  # a run goes on from its checkpoint

    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def alone(results: Results) -> Iterator[None]:
    """Hold the folder of results, so that no run is done twice at the same time; the system lets go of it when the process ends."""
    try:
        import fcntl
    except ImportError:  # Windows has no such locks
        yield
        return
    with open(results.work / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(f"another experiment is running in '{results.folder}': wait for it, or give another folder with -o") from None
        yield


def _one(run: Run, results: Results) -> bool:
    if _stopping.is_set() or time.time() >= _deadline:
        return False
    finished = run.perform(results, _Reporter(run.key, _messages.put, _deadline)) is not None
    if not finished:
        _stopping.set()  # at once: the parent may be slower than the next run
    return finished
