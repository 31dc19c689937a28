"""Draw the pictures of the documentation as SVG that follows the reader's light or dark setting.

python docs/make_drawings.py [--check]
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
IMAGES = HERE / "images"
STYLE = """
  text { font: 14px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #24292f; }
  .small { font-size: 12px; fill: #57606a; } .bold { font-weight: 600; } .middle { text-anchor: middle; }
  .letter { font: italic 16px Georgia, "Times New Roman", serif; }
  .box { fill: #f6f8fa; stroke: #8c959f; } .faint { opacity: .55; } .line { stroke: #57606a; fill: none; stroke-width: 1.5; }
  .x { fill: #ddeffa; stroke: #0072b2; } .h { fill: #fdeed3; stroke: #b06400; } .o { fill: #d9f2e9; stroke: #007556; }
  .lx { stroke: #0072b2; fill: none; } .lh { stroke: #b06400; fill: none; } .lo { stroke: #007556; fill: none; stroke-width: 2; }
  .tip { fill: #57606a; } .page { fill: #ffffff; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #12161c; } text { fill: #e6edf3; } .small { fill: #9ba5b0; } .box { fill: #1c2229; stroke: #6e7781; } .line { stroke: #9ba5b0; }
    .tip { fill: #9ba5b0; }
    .x { fill: #0c2f44; stroke: #58b4e6; } .h { fill: #40290a; stroke: #e6a23c; } .o { fill: #06382a; stroke: #3fc79a; }
    .lx { stroke: #58b4e6; } .lh { stroke: #e6a23c; } .lo { stroke: #3fc79a; }
  }
"""
TIP = '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path class="tip" d="M0 0l8 4-8 4z"/></marker>'


def drawing(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    """Return a whole SVG file; the title is what those hear who cannot see it."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-label="{escape(title)}">'
    return "\n".join(
        [
            head,
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
            f"<defs>{TIP}</defs>",
            f'<rect class="page" width="{width}" height="{height}" rx="10"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def box(x: float, y: float, width: float, height: float, kind: str = "box") -> str:
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"/>'


def text(x: float, y: float, content: str, kind: str = "middle") -> str:
    """Write a text; what follows an underscore in curly brackets is set lower."""
    written, rest = "", content
    while "_{" in rest:
        before, _, rest = rest.partition("_{")
        low, _, rest = rest.partition("}")
        written += f'{escape(before)}<tspan dy="4" font-size="11">{escape(low)}</tspan><tspan dy="-4">\u200b</tspan>'
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{written}{escape(rest)}</text>'


def arrow(points: Sequence[tuple[float, float]], kind: str = "line", width: float | None = None, tip: bool = True) -> str:
    path = "M" + " L".join(f"{x:g} {y:g}" for x, y in points)
    thick = f' stroke-width="{width:g}"' if width else ""
    head = ' marker-end="url(#tip)"' if tip else ""
    return f'<path class="{kind}" d="{path}"{thick}{head}/>'


# -- the network -------------------------------------------------------------------------------------------------------

STEPS = ("t-4", "t-3", "t-2", "t-1", "t")
WINDOW = 3
WEIGHTS = {"x": (0.5, 0.2, 0.3), "h": (0.25, 0.55, 0.2)}
"""Weights as they might be: the lines are as thick as the weights are large."""


def network() -> str:
    """Draw five steps of the network with both windows at width 3, as they stand at the last step."""
    left, apart, wide = 150, 120, 76
    middle = [left + apart * n for n in range(len(STEPS))]
    items, inputs, cells, hidden, fused = 470, 385, 285, 165, 65
    parts = [text(12, items + 26, "items", "bold"), text(12, cells + 26, "GRU cell", "bold"), text(12, cells + 44, "hidden state", "small")]
    parts += [text(12, inputs + 6, "attention", "bold"), text(12, inputs + 24, "on inputs", "bold")]
    parts += [text(12, hidden + 6, "attention on", "bold"), text(12, hidden + 24, "hidden states", "bold"), text(12, fused + 10, "interest", "bold")]
    for n, (x, step) in enumerate(zip(middle, STEPS, strict=True)):
        inside = n >= len(STEPS) - WINDOW
        parts += [box(x - wide / 2, items, wide, 40, "x" if inside else "box"), text(x, items + 25, f"x_{{{step}}}", "letter middle")]
        parts += [box(x - wide / 2, cells, wide, 50, "h" if inside else "box"), text(x, cells + 31, f"h_{{{step}}}", "letter middle")]
        parts += [arrow([(x - 26, items), (x - 26, cells + 52)])]
        if n:
            parts += [arrow([(middle[n - 1] + wide / 2, cells + 25), (x - wide / 2 - 1, cells + 25)])]
    last = middle[-1]
    for level, source, target in (("x", items, inputs + 18), ("h", cells, hidden + 18)):
        for x, weight in zip(middle[-WINDOW:], WEIGHTS[level], strict=True):
            parts += [arrow([(x, source), (x, target + 16), (last + 14 if level == "x" else last - 60, target - 2)], f"l{level}", 10 * weight, tip=False)]
    parts += [box(last - 14, inputs - 22, 56, 38, "x"), text(last + 14, inputs + 3, "x_{c}", "letter middle")]
    parts += [arrow([(last + 14, inputs - 22), (last + 14, cells + 52)])]
    parts += [box(last - 88, hidden - 22, 56, 38, "h"), text(last - 60, hidden + 3, "h_{c}", "letter middle")]
    parts += [box(last - 88, fused - 20, 126, 44, "o"), text(last - 25, fused + 8, "h_{o}", "letter middle")]
    parts += [arrow([(last - 60, hidden - 22), (last - 60, fused + 26)]), arrow([(last + 22, cells), (last + 22, fused + 26)])]
    parts += [text(last - 70, fused + 62, "F", "letter middle"), text(last + 36, fused + 62, "E", "letter middle")]
    parts += [text(last + 28, (inputs + cells) / 2 + 19, "V", "letter"), text(last - 46, items - 14, "U", "letter")]
    parts += [text((middle[0] + middle[1]) / 2, cells + 18, "W", "letter middle")]
    note = last + 66
    parts += [text(note, fused - 6, "score of an item:", "small"), text(note, fused + 14, "its row of X · h_{o}", "small")]
    parts += [text(note, hidden, "a_{h}: weights of the last", "small"), text(note, hidden + 17, "w_{h} hidden states", "small")]
    parts += [text(note, inputs, "a_{x}: weights of the last", "small"), text(note, inputs + 17, "w_{x} items", "small")]
    parts += [text(note, cells + 23, "gates z and r,", "small"), text(note, cells + 40, "candidate c", "small")]
    title = "HCA-GRU: items feed a chain of GRU cells; attention over the last items adds a contextual input to each cell, "
    return drawing(860, 530, title + "attention over the last hidden states is fused with the newest one into the interest that scores items", parts)


# -- the code ----------------------------------------------------------------------------------------------------------


def architecture() -> str:
    """Draw the layers of the package, from the very list that the tests hold the code to."""
    layers = list(reversed(_layers()))
    width, row, top, left = 860, 58, 16, 30
    parts = []
    for place, layer in enumerate(layers):
        y = top + place * row
        kind = "o" if {"cli", "serve", "experiments"} & set(layer) else "h" if {"models", "ops", "data"} & set(layer) else "box"
        each = (width - 2 * left) / len(layer)
        for n, name in enumerate(layer):
            parts += [box(left + n * each + 4, y, each - 8, 36, kind), text(left + (n + 0.5) * each, y + 23, name)]
        if place:
            parts += [arrow([(width / 2, y - 21), (width / 2, y - 1)])]
    return drawing(width, top + len(layers) * row, "The parts of hcarec in layers: a part imports from its own layer and those below, never from above", parts)


def _layers() -> list[tuple[str, ...]]:
    path = HERE.parent / "tests" / "test_architecture.py"
    specification = importlib.util.spec_from_file_location("test_architecture", path)
    assert specification is not None and specification.loader is not None
    module: Any = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return list(module.LAYERS)


DRAWINGS = {"network.svg": network, "architecture.svg": architecture}

if __name__ == "__main__":
    if "--check" in sys.argv:
        old = [name for name, draw in DRAWINGS.items() if not (IMAGES / name).exists() or (IMAGES / name).read_text() != draw()]
        sys.exit(f"not up to date: {', '.join(old)}: run make docs" if old else 0)
    IMAGES.mkdir(exist_ok=True)
    for name, draw in DRAWINGS.items():
        (IMAGES / name).write_text(draw())
