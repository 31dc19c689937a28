"""Checks of time and order: is there a clock, do events share a time, does order matter."""

from __future__ import annotations

from typing import Any

import numpy as np

from hcarec.config import TIME_UNITS
from hcarec.data.finding import Finding, level, percent
from hcarec.data.markov import LAGS, K
from hcarec.data.statistics import Statistics
from hcarec.sequences import Sequences

TIES = (0.05, 0.30)
"""Note, warn: of attention windows of 5 steps, one in five holds a tie; nearly all do."""
MIN_JUDGED = 100
"""Users below which a share of hits is too coarse to say anything about order."""
SURE = 3.0
"""Standard errors that a gain from order must reach to count; five lags are tried, so two would not do."""
WORTHWHILE = 0.10
"""A gain from order below a tenth of what shuffled order gives is small."""
YEAR = 365 * 86_400
FAR_FUTURE = 4_102_444_800
"""2100-01-01 in seconds; a fixed date, so that a check says the same tomorrow."""


def clock_kind(sequences: Sequences) -> str:
    """Say what the times are: a `clock`, a running `number`, all `equal`, or `none`.

    A running number betrays itself: it counts rows from about 0, so that users stand one after the other and never
    overlap, or it counts each user's own events.
    """
    if sequences.times is None or not sequences.n_events:
        return "none"
    times, offsets = np.asarray(sequences.times), np.asarray(sequences.offsets)
    if times.min() == times.max():
        return "equal"
    filled = np.flatnonzero(sequences.lengths)
    first, last = times[offsets[filled]], times[offsets[filled + 1] - 1]
    if len(filled) < 2 or times.min() < 0 or times.min() > YEAR * _second(sequences):
        return "clock"
    by_first = np.argsort(first, kind="stable")
    row_number = bool((last[by_first][:-1] < first[by_first][1:]).all())
    own_number = bool((first == first[0]).all() and (last - first == sequences.lengths[filled] - 1).all())
    return "number" if row_number or own_number else "clock"


def _second(sequences: Sequences) -> int:
    return TIME_UNITS.get(sequences.time_unit or "s", 1)


def times(sequences: Sequences, clock: str) -> Finding:
    """Judge the times themselves; the figure is the share of events whose time cannot be right."""
    if clock == "none":
        advice = "Prepare with a time column if the log has one: ties, leaks and the split 'time' need it."
        return Finding("times", "note", None, "There are no times, only an order.", advice)
    if clock == "equal":
        text = "All events have the same time, so the order is that of the file."
        return Finding("times", "warn", 1.0, text, "Check --time-col and --time-format when preparing.")
    if clock == "number":
        text = "The times are a running number, not a clock: they order a user's events and say nothing across users."
        advice = "Split by 'ratio' or 'leave-one-out', not by 'time'; prepare with real times if the log has them."
        return Finding("times", "note", None, text, advice)
    when, second = np.asarray(sequences.times), _second(sequences)
    odd = {"before 1970": when < 0, "exactly zero": when == 0, "after 2100": when > FAR_FUTURE * second}
    shares = {kind: float(found.mean()) for kind, found in odd.items() if found.any()}
    if shares:
        text = "Some times cannot be right: " + ", ".join(f"{percent(share)} are {kind}" for kind, share in shares.items())
        advice = "Check --time-unit and --time-format, or leave such events out with --since and --until."
        return Finding("times", "warn", sum(shares.values()), f"{text}.", advice)
    if when.max() < 10 * YEAR * second:
        text = "The times lie close to 1970: they count from an unknown day, or their unit was misjudged."
        return Finding("times", "note", 0.0, text, "Nothing to do if so in the log; else give --time-unit.")
    return Finding("times", "ok", 0.0, "The times look like a clock: none before 1970, at zero or after 2100.")


def ties(figures: Statistics, clock: str) -> Finding:
    """Judge events that share their time with the user's event before."""
    if figures.ties is None or clock == "number":
        text = "Whether events happened at the same time cannot be seen without a clock."
        advice = "If the log holds baskets or whole days, the order inside them may be arbitrary: see 'order'."
        return Finding("ties", "note", None, text, advice)
    found = level(figures.ties, TIES)
    text = f"{percent(figures.ties)} of events have the same time as the user's event before"
    if found == "ok":
        return Finding("ties", found, figures.ties, f"{text}.")
    advice = "Use a finer time if the log has one. If rows of one time stand in no true order, 'order' tells what it costs."
    return Finding("ties", found, figures.ties, f"{text}: among those the order is that of the file.", advice)


def order(measured: dict[str, Any]) -> Finding:
    """Say whether order matters at all; the figure is the gain in hit@20 of the true order over shuffled ones."""
    if measured["users"] < MIN_JUDGED:
        text = f"Only {measured['users']:,} users have 3 events or more: too few to say whether order matters."
        return Finding("order", "note", None, text, "Compare gru and hca-gru with bpr, and trust large gaps only.")
    lag, best = measured["best"], measured["by_lag"][measured["best"] - 1]
    whence = "the last event" if lag == 1 else f"the event {lag} back"
    sample = f" ({measured['users']:,} users sampled)" if measured["sampled"] else ""
    hits, by_chance = best[f"hit@{K}"], best["shuffled"][f"hit@{K}"]
    words = f"counting what follows {whence} finds {percent(hits)} of next items in {K} guesses"
    words += f", and {percent(by_chance)} once histories are shuffled{sample}"
    gain, tied = best["gain"], measured.get("tied")
    if gain < SURE * best["error"]:
        text = f"Order does not seem to matter up to {LAGS} events back: {words}."
        advice = "Expect little from gru and hca-gru over bpr; make sure that the log's order is the true one."
        return Finding("order", "warn", gain, text, advice)
    if tied and tied["gain"] > max(gain / 2, SURE * tied["error"]):
        among = f"{percent(tied['shuffled'][f'hit@{K}'])} if only events of one time are shuffled"
        text = f"Order matters, but mostly among events of one time: {words}, {among}."
        advice = "Trust it only if the rows were written as things happened: else models learn the habits of an export."
        return Finding("order", "warn", gain, text, advice)
    if gain < WORTHWHILE * by_chance:
        advice = "Compare gru and hca-gru with bpr before choosing."
        return Finding("order", "note", gain, f"Order matters a little: {words}.", advice)
    if lag > 1:
        advice = f"Give hca-gru windows of at least {lag}."
        return Finding("order", "ok", gain, f"Order matters, and the deciding event lies {lag} back: {words}.", advice)
    return Finding("order", "ok", gain, f"Order matters: {words}.")
