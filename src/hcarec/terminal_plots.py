"""Small bar charts of block characters, for the terminal."""

from __future__ import annotations

_EIGHTHS = " ▏▎▍▌▋▊▉█"


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
