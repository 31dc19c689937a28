"""How methods are drawn: the same colour, marker and line in every figure, told apart without colour sight as well."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from hcarec.plots import BLACK

GREY, FAINT = "#5F6670", "#E9EBED"
_SHADES = {
    "x": ("#7DBBE0", "#3A95CC", "#0072B2", "#004A75"),
    "h": ("#EBA937", "#D98500", "#B06400", "#754000"),
    "xh": ("#5CC7A5", "#009E73", "#007556", "#004D39"),
}
"""Blues, oranges and greens of Okabe and Ito, from light to dark as windows grow from 2 to 5."""
_MARKERS = ("o", "s", "^", "D")
LINES: dict[str, Any] = {"x": "solid", "h": (0, (4, 1.6)), "xh": (0, (6, 1.5, 1.2, 1.5))}
"""Each family has lines of its own, and h has open markers."""


class Look(NamedTuple):
    """How a method is drawn."""

    colour: str
    marker: str
    line: Any
    filled: bool = True

    def marks(self, size: float) -> dict[str, Any]:
        """Return the marker as matplotlib's arguments."""
        face = self.colour if self.filled else "white"
        return {"marker": self.marker, "markersize": size, "color": self.colour, "markerfacecolor": face, "markeredgewidth": 1.3}


_BASELINES = {
    "GRU": Look(GREY, "X", (0, (2, 1.5))),
    "SASRec": Look("#7A6FB0", "D", (0, (4, 1.5))),
    "BPR": Look("#B5568A", "v", (0, (1, 1.5))),
    "Markov": Look("#4F7F6B", "^", (0, (3, 1.5))),
    "ItemKNN": Look("#4F7F6B", "<", (0, (1, 1))),
    "POP": Look("#8A8F96", "P", "dotted"),
    "Random": Look("#8A8F96", "*", "dotted"),
}


def windows(method: str) -> tuple[str, int] | None:
    """Return the family of a network (x, h, xh) and its width (the input's of a complete one), None for other methods."""
    found = re.fullmatch(r"HCA-GRU(?:-x(\d+))?(?:-h(\d+))?", method)
    if not found or not (found[1] or found[2]):
        return None
    return "x" * bool(found[1]) + "h" * bool(found[2]), int(found[1] or found[2])


def look(method: str) -> Look:
    """Return how a method is drawn, by its name."""
    found = windows(method)
    if found is None:
        return _BASELINES.get(method, Look(BLACK, "x", "solid"))
    family, width = found
    shade = min(max(width, 2), 5) - 2
    return Look(_SHADES[family][shade], _MARKERS[shade], LINES[family], family != "h")


def of_family(family: str) -> Look:
    """Return how the chosen network of a family is drawn where its width is told elsewhere: a marker for each family."""
    return Look(_SHADES[family][2], {"x": "o", "h": "s", "xh": "D"}[family], LINES[family], family != "h")


def legend(drawn: Any, looks: Mapping[str, Look], reference: str = "") -> None:
    """Put one legend above all panels: markers by their labels, and a line for the reference where there is one."""
    from matplotlib.lines import Line2D

    own = look(reference)
    handles = [Line2D([], [], label=reference, color=own.colour, linestyle=own.line, linewidth=1.6)] if reference else []
    handles += [Line2D([], [], label=label, linestyle="none", **one.marks(6)) for label, one in looks.items()]
    if handles:
        drawn.legend(handles=handles, loc="outside upper center", ncols=min(len(handles), 9), frameon=False, handlelength=1.8)
