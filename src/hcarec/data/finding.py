"""What a health check finds."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Finding:
    """One check and its outcome.

    `level` is ok, note or warn; `figure` is what was measured, None where it cannot be; `text` says it in words and
    `advice` what to do about it, empty where there is nothing to do.
    """

    name: str
    level: str
    figure: float | None
    text: str
    advice: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the finding, fit for JSON."""
        return asdict(self)


def level(figure: float, thresholds: tuple[float, float]) -> str:
    """Return warn or note where a figure reaches the second or the first threshold, else ok."""
    note, warn = thresholds
    return "warn" if figure >= warn else "note" if figure >= note else "ok"


def percent(share: float) -> str:
    """Write a share in percent with as many digits as it needs: <0.1%, 2.5%, 37%, 99.6%."""
    hundredths = 100 * share
    if 0 < hundredths < 0.1:
        return "<0.1%"
    if 99.9 < hundredths < 100:
        return ">99.9%"
    return f"{hundredths:.0f}%" if hundredths in (0, 100) or 9.95 <= hundredths < 99 else f"{hundredths:.1f}%"
