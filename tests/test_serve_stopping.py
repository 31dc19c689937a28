"""The guard that ends a process which cannot stop: it lets one go on that has stopped."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from hcarec.serve import stopping
from hcarec.serve.stopping import ForcedExit


def test_a_process_that_has_stopped_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    monkeypatch.setattr(stopping.os, "_exit", lambda code: ended.set())
    forced = ForcedExit(0.2)
    forced.begin()
    forced.disarm()
    assert not ended.wait(0.5)


@pytest.mark.parametrize("disarm", ["forced.disarm()", ""])
def test_a_process_with_a_thread_that_hangs_is_ended(disarm: str) -> None:
    code = f"""
import threading
from hcarec.serve.stopping import ForcedExit
forced = ForcedExit(0.5)
forced.last = lambda: print("last", flush=True)
threading.Thread(target=threading.Event().wait).start()
forced.begin()
{disarm}
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == stopping.FORCED and done.stdout == "last\n"
