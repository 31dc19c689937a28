"""Ctrl-C and polite kills, as a flag that training looks at between two pieces of work."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def stop_flag() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C (or a polite kill) into a flag; the second one stops at once."""
    flag = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return
    before: dict[int, Any] = {}

    def ask(number: int, _: object) -> None:
        flag.set()
        signal.signal(number, before[number])

    for number in (int(signal.SIGINT), int(signal.SIGTERM)):
        before[number] = signal.getsignal(number)
        signal.signal(number, ask)
    try:
        yield flag
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
