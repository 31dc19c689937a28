"""How late the loop is: with more to do than there is time for, requests wait unread, and no clock of theirs has begun to run."""

from __future__ import annotations

import asyncio

LOOK_EVERY_S = 0.002
IDLE_LOOKS = 50
"""Looks that nobody asks about after which there are no more, until somebody asks again: an idle server sleeps."""


class Lateness:
    """Sleeps for a moment again and again, and notes by how much each sleep was too long: about as long has a request waited that is read now."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._unasked = IDLE_LOOKS

    def ask(self) -> float:
        """Return by how many seconds the running loop is late; 0 for the first who asks in a while."""
        if self._unasked >= IDLE_LOOKS:
            self._sleep(asyncio.get_running_loop())
        self._unasked = 0
        return self.seconds

    def _sleep(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_later(LOOK_EVERY_S, self._look, loop, loop.time() + LOOK_EVERY_S)

    def _look(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self._unasked += 1
        if self._unasked < IDLE_LOOKS:
            self.seconds = max(0.0, loop.time() - due)
            self._sleep(loop)
        else:
            self.seconds = 0.0
