"""Check whether a log can be learned from and its results trusted, in plain words with a figure each.

Every threshold is a constant with its reason. `docs/health.md` says what each check means and what to do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hcarec.data import health_order
from hcarec.data.finding import Finding, level, percent
from hcarec.data.markov import order_matters
from hcarec.data.split import split
from hcarec.data.statistics import Statistics, statistics
from hcarec.sequences import Sequences

SHORT_USER = 3
"""Events below which the ratio split leaves fewer than two to train on, so no step from an event to the next."""
RARE_ITEM = 5
"""Events below which an item's vector has hardly moved from where it began; also the usual core of published data."""
RARE = (0.10, 0.50)
"""Note, warn: a tenth of the users or of the catalogue is worth a remark, half of it decides the result."""
LEAK = (0.01, 0.10)
"""Note, warn: the model has seen this share of its training happen after the test event that it predicts."""
UNSEEN = (0.01, 0.10)
"""Note, warn: no model that learns item by item reaches this share of the test, so recall stays below the rest."""
LONG_USER_SHARE = (0.01, 0.05)
"""Note, warn: one user with this share of all events speaks for many; often a till, a test account or a robot."""
LONG_USER = 1_000
"""Events of one user worth a remark: few people have so many, and one training step takes them all."""
TOP_ITEM_SHARE = (0.05, 0.20)
"""Note, warn: recommending one item to everybody hits this often; often a bag, a fee or a start page."""
OFTEN_REPEATED, SELDOM_REPEATED = 0.10, 0.01
"""Repeats above the first are part of what to recommend, below the second hiding what was seen can only help."""
CONSECUTIVE = 0.10
"""Share of events that repeat the one before and so make 'the same again' the easiest answer."""
EVENTS_PER_ITEM = (10.0, 3.0)
"""Note below, warn below: the paper's data have 6 (Taobao) and 12 (Outbrain) events an item."""


def check(sequences: Sequences, seed: int = 0, *, figures: Statistics | None = None, order: dict[str, Any] | None = None) -> list[Finding]:
    """Run all checks; `figures` and `order` save work where `statistics` and `order_matters` were asked already."""
    if not sequences.n_events:
        advice = "See the report of 'hcarec prepare': a filter or a wrong column may have taken them all."
        return [Finding("events", "warn", 0.0, "The data has no events.", advice)]
    figures = figures or statistics(sequences)
    clock = health_order.clock_kind(sequences)
    return [
        health_order.times(sequences, clock),
        health_order.ties(figures, clock),
        health_order.order(order or order_matters(sequences, seed)),
        short_users(figures),
        long_users(figures),
        rare_items(figures),
        top_item(figures),
        catalogue(figures),
        repeats(figures),
        same_again(figures),
        *split_by_ratio(sequences, clock),
    ]


def short_users(figures: Statistics) -> Finding:
    """Judge users too short to learn from."""
    short, events = figures.lengths.below(SHORT_USER)
    share, under_five = short / figures.users, figures.lengths.below(5)[0] / figures.users
    text = f"{percent(share)} of users have fewer than {SHORT_USER} events, {percent(under_five)} fewer than 5"
    if share < RARE[0]:
        return Finding("short users", "ok", share, f"{text}.")
    text += f"; the former hold {percent(events / figures.events)} of events and give nothing to learn order from."
    advice = "Leave them out with --min-user-events 5, or accept that they are served mostly by popularity."
    return Finding("short users", level(share, RARE), share, text, advice)


def long_users(figures: Statistics) -> Finding:
    """Judge users with very many events."""
    longest, median = figures.lengths.quantile(100), figures.lengths.quantile(50)
    share = longest / figures.events
    found = level(share, LONG_USER_SHARE)
    if found == "ok" and longest > LONG_USER:
        found = "note"
    text = f"The longest user has {longest:,} events, {percent(share)} of all; the median user has {median:,}."
    advice = "See who it is; leave out tills, test accounts and robots with --max-user-events."
    return Finding("long users", found, share, text, "" if found == "ok" else advice)


def rare_items(figures: Statistics) -> Finding:
    """Judge items too rare to learn from."""
    rare, events = figures.popularity.below(RARE_ITEM)
    share = rare / figures.items
    text = f"{percent(share)} of items have fewer than {RARE_ITEM} events, {percent(events / figures.events)} of all"
    if share < RARE[0]:
        return Finding("rare items", "ok", share, f"{text}.")
    advice = f"Leave them out with --min-item-events {RARE_ITEM} if they need not be recommended."
    return Finding("rare items", level(share, RARE), share, f"{text}: too few to place an item well.", advice)


def top_item(figures: Statistics) -> Finding:
    """Judge an item that dominates."""
    share = figures.popularity.quantile(100) / figures.events
    found = level(share, TOP_ITEM_SHARE)
    tenth = percent(figures.popularity.top(0.1))
    text = f"The most popular item has {percent(share)} of events, the most popular tenth of items {tenth}."
    advice = "If it is nothing to recommend (a bag, a fee, a start page), leave it out before preparing."
    return Finding("top item", found, share, text, "" if found == "ok" else advice)


def catalogue(figures: Statistics) -> Finding:
    """Judge the size of the catalogue against the events."""
    mean = figures.events / figures.items
    found = "warn" if mean < EVENTS_PER_ITEM[1] else "note" if mean < EVENTS_PER_ITEM[0] else "ok"
    text = f"There are {mean:.1f} events per item, in a catalogue of {figures.items:,}."
    advice = "Expect low figures; a longer log, coarser items (one for all sizes and colours) or --min-item-events help."
    return Finding("catalogue", found, mean, text, "" if found == "ok" else advice)


def repeats(figures: Statistics) -> Finding:
    """Judge how often users come back to an item: it decides whether to hide what was seen."""
    share = figures.repeats
    text = f"{percent(share)} of events are of an item that the user had before."
    if share >= OFTEN_REPEATED:
        advice = "Do not use --hide-seen: coming back is part of what is to be predicted."
        return Finding("repeats", "note", share, text, advice)
    if share < SELDOM_REPEATED:
        return Finding("repeats", "note", share, text, "Use --hide-seen: hardly anybody comes back to an item.")
    return Finding("repeats", "ok", share, text, "Try with and without --hide-seen.")


def same_again(figures: Statistics) -> Finding:
    """Judge how often an event repeats the one before."""
    share = figures.consecutive_repeats
    text = f"{percent(share)} of events are of the same item as the user's event before."
    if share < CONSECUTIVE:
        return Finding("same again", "ok", share, text)
    advice = "If these are reloads or quantities, keep the first of each run with --repeats consecutive."
    return Finding("same again", "note", share, text, advice)


def split_by_ratio(sequences: Sequences, clock: str) -> list[Finding]:
    """Judge the ratio split: test items never trained on, and training that lies in the future of the test."""
    parts = split(sequences, "ratio")
    if not len(parts.train.items):
        text = "No user has two events: a split leaves nothing to train on."
        advice = "Gather longer histories, or check --user-col."
        return [Finding(name, "warn", None, text, advice) for name in ("unseen test items", "leak")]
    trained = np.zeros(sequences.n_items, bool)
    trained[parts.train.items] = True
    unseen = float(1 - trained[parts.test.items].mean())
    text = f"{percent(unseen)} of test items (split 'ratio') never occur in training"
    if unseen < UNSEEN[0]:
        finding = Finding("unseen test items", "ok", unseen, f"{text}.")
    else:
        advice = f"No model here finds them, so recall stays below {percent(1 - unseen)}; --min-item-events helps."
        finding = Finding("unseen test items", level(unseen, UNSEEN), unseen, f"{text}.", advice)
    return [finding, _leak_finding(sequences, parts.train.lengths, clock)]


def _leak_finding(sequences: Sequences, train_lengths: np.ndarray, clock: str) -> Finding:
    if clock != "clock":
        text = "How far training looks into the future of the test cannot be seen without a clock."
        advice = "With a 'ratio' split it does, through other users; take the figures as comparisons between models."
        return Finding("leak", "note", None, text, advice)
    share = leak(sequences, train_lengths)
    text = f"With the split 'ratio', a test event is followed by {percent(share)} of the training events (of other users)."
    advice = "Fine for comparing models, and with the paper; for figures that must hold in production use --split time."
    return Finding("leak", level(share, LEAK), share, text, "" if share < LEAK[0] else advice)


def leak(sequences: Sequences, train_lengths: np.ndarray) -> float:
    """Return the share of training events later than a test event, on average over the events not trained on."""
    times, offsets = np.asarray(sequences.times), np.asarray(sequences.offsets)
    place = np.arange(len(times)) - np.repeat(offsets[:-1], sequences.lengths)
    trains = place < np.repeat(train_lengths, sequences.lengths)
    training = np.sort(times[trains])
    later = len(training) - np.searchsorted(training, np.sort(times[~trains]), side="right")
    return float(later.mean() / len(training))
