"""Small bar charts and heat strips of characters, for the terminal."""

from __future__ import annotations

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_SHADES, _PLAIN_SHADES = " ░▒▓█", " .:+#"
_BLUE = (0, 114, 178)  # of the colours that stay apart for the colour-blind


def bar(share: float, width: int, blocks: bool = True) -> str:
    """Draw a bar that fills a share of the width, to an eighth of a character; anything above nothing shows."""
    eighths = round(share * width * 8)
    if share > 0:
        eighths = max(1, eighths)
    if not blocks:  # a terminal that cannot show block characters
        return "#" * -(-eighths // 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def histogram(bins: list[tuple[int, int, int]], width: int = 30, blocks: bool = True) -> list[str]:
    """Draw bins (from, to, count) as lines: the range, a bar, the count; empty bins are kept, so that gaps show."""
    labels = [_label(low, high) for low, high, _ in bins]
    counts = [f"{count:,}" for _, _, count in bins]
    most = max((count for _, _, count in bins), default=0)
    left, right = max(map(len, labels), default=0), max(map(len, counts), default=0)
    return [
        f"{label:>{left}}  {bar(bins[n][2] / most if most else 0.0, width, blocks):<{width}}  {count:>{right}}"
        for n, (label, count) in enumerate(zip(labels, counts, strict=True))
    ]


def _label(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,}-{high:,}"


def shade(share: float, blocks: bool = True) -> str:
    """Return a character as dark as a share of the most: five steps, and anything above nothing shows."""
    step = min(4, round(4 * share)) if share > 0 else 0
    return (_SHADES if blocks else _PLAIN_SHADES)[max(step, 1) if share > 0 else 0]


def heat_row(weights: list[float | None], most: float, width: int = 6, blocks: bool = True) -> list[str]:
    """Draw a row of weights as cells of a width: a shade and the number, so that it reads without colour; blank where there is none."""
    return [" " * width if weight is None else f"{shade(weight / most if most else 0.0, blocks)} {weight:.2f}".rjust(width) for weight in weights]


def heat_colour(share: float) -> tuple[str, str]:
    """Return background and text colour of a cell, as hex: white to blue, the text dark on light and light on dark."""
    share = min(1.0, max(0.0, share))
    background = "#" + "".join(f"{round(255 + share * (channel - 255)):02x}" for channel in _BLUE)
    return background, "#ffffff" if share > 0.9 else "#000000"
