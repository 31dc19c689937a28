"""The attention at each of the last steps of a history, as the paper's Table 5 shows it for one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hcarec.serve.serving import Serving


class Step(NamedTuple):
    """One event: the attention over the last inputs and over the last hidden states when it came in, oldest to newest.

    None for a level that is off, and for a model without attention. `time` in microseconds since 1970, None where it has none.
    """

    item: str | int
    title: str | None
    time: int | None
    inputs: list[float] | None
    hidden: list[float] | None


class Attention(NamedTuple):
    """The last steps that a model knows, oldest first."""

    model: str
    window_x: int
    window_h: int
    steps: list[Step]


def attention(serving: Serving, past: Sequence[tuple[str, int | None]], last: int) -> Attention:
    """Return the attention at the last steps of a history of (item, time)."""
    model = serving.model
    found = [(index, time) for item, time in past if (index := serving.find(item)) >= 0]
    shown = found[-last:]
    inputs: list[list[float] | None] = [None] * len(shown)
    hidden: list[list[float] | None] = [None] * len(shown)
    if shown and model.has_attention:
        a_x, a_h = model.attention(np.array([index for index, _ in found], np.int32), last)
        inputs = inputs if a_x is None else a_x.tolist()
        hidden = hidden if a_h is None else a_h.tolist()
    steps = [Step(model.item_ids[index], model.title(index), time, *rows) for (index, time), *rows in zip(shown, inputs, hidden, strict=True)]
    return Attention(serving.name, *model.windows, steps)
