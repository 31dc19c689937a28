"""`hcarec serve` as a process that can be killed, started in a fraction of a second.

Most of a start is imports and the loading of compiled code. A process that has done both, and runs no second thread, forks itself for
every start: what is started that way reads its arguments, opens its files and dies like any other. `command=True` starts the command
itself instead.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

# One line of JSON asks for a start, a number for the end of a process; children die with it, and it dies with who reads its answers.
FORKS = """
import ctypes, json, os, signal, sys
import numpy as np
import hcarec.cli.app, hcarec.cli.serve, hcarec.recommendation, hcarec.serve.server
from hcarec import topk
from hcarec.cli import main
from hcarec.ops import cpu
topk.warm()
assert len(os.listdir("/proc/self/task")) == 1, "a fork would lose threads"
libc = ctypes.CDLL(None)
print("ready", flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if isinstance(asked, int):
        print(os.waitstatus_to_exitcode(os.waitpid(asked, 0)[1]), flush=True)
        continue
    pid = os.fork()
    if pid:
        print(pid, flush=True)
        continue
    libc.prctl(1, signal.SIGKILL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(asked[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.argv = ["hcarec", "serve", *asked["arguments"]]
    code = 0
    try:
        main()
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
"""
DEADLINE_S = 120


def runs(pid: int) -> bool:
    """Say whether a process is there and is not merely waiting to be buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Process:
    """A service; `said` and `errors` are what it has written so far."""

    def __init__(self, starter: Starter, arguments: list[str], number: int, command: bool) -> None:
        self._starter = starter
        self._out, self._err = starter.folder / f"{number}.out", starter.folder / f"{number}.err"
        self._child: subprocess.Popen[bytes] | None = None
        if command:
            with open(self._out, "wb") as out, open(self._err, "wb") as err:
                self._child = subprocess.Popen([sys.executable, "-m", "hcarec", "serve", *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=err)
            self.pid = self._child.pid
        else:
            self.pid = int(starter.forks.ask({"arguments": arguments, "out": str(self._out), "err": str(self._err)}))
        self.code: int | None = None

    @property
    def said(self) -> str:
        return self._out.read_text() if self._out.exists() else ""

    @property
    def errors(self) -> str:
        return self._err.read_text() if self._err.exists() else ""

    def address(self) -> str | None:
        """Wait until requests are taken and return the address, or None if it ended instead."""
        end = time.monotonic() + DEADLINE_S
        while True:
            ended = self.ended()
            if "Ctrl-C" in (said := self.said):
                return re.findall(r"http://\S+", said)[0]
            if ended:
                return None
            assert time.monotonic() < end, f"it neither started nor ended: {said} {self.errors}"
            time.sleep(0.002)

    def ended(self) -> bool:
        """Say whether it has ended by itself; an ended child of another process stays a zombie until it is waited for."""
        if self.code is not None:
            return True
        if self._child is not None:
            return self._child.poll() is not None
        return not runs(self.pid)

    def signal(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal."""
        if self.code is None:
            os.kill(self.pid, how)

    def wait(self) -> int:
        """Wait for the end; return the exit code, negative for a signal."""
        if self.code is None:
            self.code = self._child.wait(DEADLINE_S) if self._child is not None else int(self._starter.forks.ask(self.pid))
        return self.code

    def kill(self) -> None:
        """End it at once, with no chance to tidy up."""
        self.signal(signal.SIGKILL)
        self.wait()

    def helpers(self) -> list[int]:
        """Return the processes that it has started itself."""
        found: list[int] = []
        for listed in Path(f"/proc/{self.pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):  # a thread that has ended
                found += map(int, listed.read_text().split())
        return found

    def kill_all(self) -> None:
        """End it and its helpers at once, and wait until all of them are gone."""
        helpers = self.kill_helpers()
        self.kill()
        end = time.monotonic() + DEADLINE_S
        while any(map(runs, helpers)):
            assert time.monotonic() < end, "a helper cannot be killed"
            time.sleep(0.002)

    def kill_helpers(self) -> list[int]:
        """End its helpers at once; return which."""
        helpers = self.helpers()
        for pid in helpers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return helpers

    def resident_mib(self) -> float:
        """Return the memory that it and its helpers occupy."""
        written = "".join(Path(f"/proc/{pid}/status").read_text() for pid in (self.pid, *self.helpers()))
        return sum(int(size) for size in re.findall(r"VmRSS:\s+(\d+) kB", written)) / 1024


class Forks:
    """The process that forks services."""

    def __enter__(self) -> Self:
        # Threads of a linear algebra library would be lost by a fork.
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen([sys.executable, "-c", FORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        assert self._process.stdout is not None and self._process.stdout.readline() == "ready\n"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.communicate()

    def ask(self, what: Any) -> str:
        """Ask for a start or for an end, and return the answer."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()


class Starter:
    """Starts services, and ends those that are left when its block ends."""

    def __init__(self, forks: Forks, folder: Path) -> None:
        self.forks, self.folder = forks, folder
        self._started: list[Process] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for process in self._started:
            if process.code is None:
                process.kill()

    def start(self, *arguments: str | Path | int, command: bool = False) -> Process:
        """Start a service with arguments of the command; a free port is taken."""
        given = [str(one) for one in (*arguments, "--port", 0, "--log", "errors")]
        process = Process(self, given, len(self._started), command)
        self._started.append(process)
        return process
