"""Python's search for garbage, kept from interrupting those who wait for an answer."""

from __future__ import annotations

import gc

COLLECT_AFTER = (2_000, 50, 1_000)
"""When Python looks for garbage: by default every few milliseconds, and now and then through everything, for which all requests wait 30 ms and more."""


def look_seldom() -> None:
    """Look for garbage less often, and only among what is made from now on; to be called when everything is loaded."""
    gc.collect()
    gc.freeze()  # what is there now stays: no need to look through it again and again
    gc.set_threshold(*COLLECT_AFTER)
