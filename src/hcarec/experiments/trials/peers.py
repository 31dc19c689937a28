"""Figures that others publish on two logs of the contest: full ranking, leave-one-out.

A log is known by its counts, so that figures never stand beside another version of it. F and U are
different protocols, and figures of the one are never put beside those of the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from hcarec.experiments.trials.rules import F, U


class Published(NamedTuple):
    """A published figure: the model, NDCG@10 and Recall@10, and where they stand."""

    rule: str
    model: str
    ndcg: float
    recall: float
    source: str


class Log(NamedTuple):
    """A log that others publish figures on: its name for people, and its counts."""

    name: str
    counts: Mapping[str, int]
    figures: tuple[Published, ...]


_ANTKLEN = "antklen/sasrec-bert4rec-recsys23"
_BENCHMARK = "blondered/transformer_benchmark"
_BOARD = "their logs; MTandHJ/RecBoard"

LOGS = (
    Log(
        "ML-1M, 5-core, ties in file order",
        {"items": 3_416, "events": 999_611},
        (
            Published(F, "WEARec, length 200", 0.1904, 0.333, "xhy963319431/WEARec, its logs"),
            Published(F, "WEARec, length 100", 0.182, 0.318, "xhy963319431/WEARec, its logs"),
            Published(F, "WEARec, length 50", 0.170, 0.295, "xhy963319431/WEARec, its logs"),
            Published(F, "SASRec, sampled, 3,000 negatives", 0.186, 0.316, _ANTKLEN),
            Published(F, "SASRec, full cross-entropy", 0.182, 0.315, _ANTKLEN),
            Published(F, "GRU4Rec, full cross-entropy", 0.165, 0.281, _ANTKLEN),
            Published(F, "BERT4Rec", 0.154, 0.284, _ANTKLEN),
            Published(F, "SASRec with BCE", 0.134, 0.250, _ANTKLEN),
        ),
    ),
    Log(
        "Beauty, 5-core",
        {"users": 22_363, "items": 12_101},
        (
            Published(F, "WEARec (best on test of many runs)", 0.0614, 0.104, _BOARD),
            Published(F, "BSARec (5 seeds)", 0.0610, 0.100, _BOARD),
            Published(F, "TV-Rec", 0.0608, 0.102, _BOARD),
            Published(F, "HSTU (uses time)", 0.0543, 0.0945, f"RecBoard; {_BENCHMARK}"),
            Published(F, "SASRec, sampled softmax", 0.0531, 0.0921, f"RecBoard; {_BENCHMARK}"),
            Published(F, "eSASRec", 0.0523, 0.0928, f"RecBoard; {_BENCHMARK}"),
            Published(U, "LC-Rec", 0.0438, 0.0791, "phonism/genrec; their papers"),
            Published(U, "ActionPiece", 0.0424, 0.0775, "phonism/genrec; their papers"),
            Published(U, "HSTU", 0.0412, 0.0708, "phonism/genrec; their papers"),
            Published(U, "GRU4Rec CE", 0.039, 0.069, "Li-fAngyU/sequential_rec"),
        ),
    ),
)


def peers(log: Mapping[str, Any]) -> Log | None:
    """Return what is published on a log, given by its statistics, or None."""
    for known in LOGS:
        if all(log[name] == count for name, count in known.counts.items()):
            return known
    return None
