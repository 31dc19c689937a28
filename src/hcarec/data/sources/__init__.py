"""Known data sets: what they are, under which terms, and how they come onto this machine."""

from __future__ import annotations

from hcarec.data.sources.catalogue import find, known
from hcarec.data.sources.model import Obtained, Source
from hcarec.data.sources.obtaining import obtain

__all__ = ["Obtained", "Source", "find", "known", "obtain"]
