"""Read numbers out of text: exactly, and quickly where they are short."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
from numba import njit

from hcarec.data.scan import BAD_TIME, MISSING_TIME, OK, trimmed
from hcarec.errors import InputError

INTEGER = re.compile(rb"\s*[-+]?\d+\s*")
NUMBER = re.compile(rb"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")
_POWERS = 10.0 ** np.arange(23)
_BAD, _WHOLE, _FRACTION, _SLOW = 0, 1, 2, 3


def parse_numbers(text: np.ndarray, starts: np.ndarray, ends: np.ndarray, status: np.ndarray) -> np.ndarray:
    """Return numbers (n,), int64 where all are whole, float64 otherwise; mark rows that hold none."""
    whole, broken = np.zeros(len(starts), np.int64), np.zeros(len(starts), np.float64)
    kind = np.zeros(len(starts), np.uint8)
    _numbers(text, starts, ends, status, _POWERS, whole, broken, kind)
    for n in np.flatnonzero(kind == _SLOW):
        value = _slow_number(text[starts[n] : ends[n]].tobytes())
        if value is None:
            status[n] = BAD_TIME
        elif isinstance(value, int):
            whole[n], kind[n] = value, _WHOLE
        else:
            broken[n], kind[n] = value, _FRACTION
    fractions = kind == _FRACTION
    if not fractions.any():
        return whole
    _check_exact(whole[~fractions])
    return np.where(fractions, broken, whole.astype(np.float64))


def join(parts: list[np.ndarray]) -> np.ndarray:
    """Put times together, as integers where all are."""
    if any(part.dtype == np.float64 for part in parts):
        for part in parts:
            if part.dtype == np.int64:
                _check_exact(part)
        parts = [part.astype(np.float64) for part in parts]
    return np.concatenate(parts)


def _check_exact(integers: np.ndarray) -> None:
    """Refuse integers that floats could not tell apart."""
    if len(integers) and int(np.abs(integers).max()) > 1 << 53:
        raise InputError("the time column mixes fractions with integers beyond 2^53, which would lose their order: bring them to one form")


def _slow_number(token: bytes) -> int | float | None:
    """Read any finite number that fits 64 bits, an integer where it is one; None for anything else."""
    if INTEGER.fullmatch(token):
        value: int | float = int(token)
    elif NUMBER.fullmatch(token) and math.isfinite(float(token)):
        value = float(token)
        value = int(value) if value.is_integer() else value
    else:
        return None
    return value if isinstance(value, float) or -(2**63) <= value < 2**63 else None


@njit(nogil=True, cache=True)
def _numbers(text: Any, starts: Any, ends: Any, status: Any, powers: Any, whole: Any, broken: Any, kind: Any) -> None:
    """Read numbers exactly where that is quick (up to 18 digits), leave the rest to the slow path."""
    for n in range(len(starts)):
        if status[n] != OK:
            continue
        place, end = trimmed(text, starts[n], ends[n])
        if place == end:
            status[n] = MISSING_TIME
            continue
        negative = text[place] == 45
        if negative or text[place] == 43:
            place += 1
        digits, scale, mantissa = 0, -1, np.int64(0)
        while place < end:
            c = text[place]
            if 48 <= c <= 57 and digits < 18:
                mantissa = mantissa * 10 + (c - 48)
                digits += 1
                if scale >= 0:
                    scale += 1
            elif c == 46 and scale < 0:
                scale = 0
            else:
                break
            place += 1
        if place < end or digits == 0:
            kind[n] = _SLOW
            continue
        while scale > 0 and mantissa % 10 == 0:
            mantissa //= 10
            scale -= 1
        if negative:
            mantissa = -mantissa
        if scale <= 0:
            whole[n], kind[n] = mantissa, _WHOLE
        elif abs(mantissa) <= 1 << 53:
            broken[n], kind[n] = mantissa / powers[scale], _FRACTION
        else:
            kind[n] = _SLOW
