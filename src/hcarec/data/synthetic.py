"""Make an event log in which it is known what decides the next event.

Every event is of one of four kinds, drawn independently:

- *repeat* (share `repeats`): an item out of the user's own history, each earlier event as likely as the other;
- *interest* (share `interest`): the successor of the item `lag` events back. Every item has one fixed successor. With a
  lag of 3 the deciding item is neither the last nor the first, so that what matters does not fall evenly with age;
- *taste* (share `taste`): an item out of the user's favourite groups, by popularity. It never changes with time;
- *popularity* (the rest): any item, by popularity, which falls with rank as 1 / rank ** zipf.

So a model that counts what sells finds the last kind, one that knows users but no order the last two, and one that
reads the order, and far enough back, finds the interest too. An interest that would reach back before the user's first
event becomes taste or popularity. Taste and popularity avoid what they gave to the user before, as far as the catalogue
allows; so repeats are those asked for and those that interest leads back to.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hcarec.errors import ConfigError
from hcarec.ids import Ids
from hcarec.sequences import Sequences

FAVOURITES = 2
"""Groups that a user prefers."""
CYCLE = 32
"""Items whose successors form a ring; neighbours in popularity, so that interest leaves popularity about as it is."""
MAX_GROUPS = 30
"""Groups have names, and there are so many."""
TRIES = 6
"""Times that taste and popularity draw until they find an item new to the user."""
START = 1_704_067_200
"""The log begins on 2024-01-01."""
SPAN = 360 * 86_400
"""Seconds that the log spans, about: a user comes in its first half and stays for half of it."""
VISIT_SHARE = 0.15
"""Share of events that begin a new visit, some days after the last; the others follow within minutes."""

_LOOKS = """
    Amber Blue Bright Classic Coral Dark Fine Folding Golden Green Grey Ivory Large Light Little Plain Purple
    Red Round Rustic Silver Slim Small Soft Square Striped Tall Tiny Vintage White
"""
_STUFFS = """
    Ash Bamboo Beech Brass Clay Copper Cork Cotton Felt Glass Iron Jute Leather Linen Marble Oak Paper Pine Silk
    Steel Stone Tin Walnut Wicker Wool
"""
_THINGS = """
    Lamp Mug Bowl Chair Clock Basket Vase Shelf Tray Cushion Blanket Mirror Candle Frame Stool Teapot Plate
    Table Rug Box Jug Bench Bag Scarf Hook Board Kettle Planter Notebook Puzzle
"""


def synthetic(
    users: int = 2000,
    items: int = 1000,
    mean_length: float = 40,
    zipf: float = 1.0,
    taste: float = 0.3,
    interest: float = 0.5,
    lag: int = 3,
    repeats: float = 0.05,
    seed: int = 0,
) -> Sequences:
    """Make a log; the catalogue holds all `items`, the rarest perhaps without an event."""
    sizes = {"users": users, "items": items, "mean_length": mean_length, "zipf": zipf}
    knobs = sizes | {"taste": taste, "interest": interest, "lag": lag, "repeats": repeats, "seed": seed}
    _check(knobs)
    rng = np.random.Generator(np.random.PCG64(seed))
    lengths = _lengths(rng, users, mean_length)
    ranks, group_offsets = _catalogue(rng, items)
    offsets = np.zeros(users + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    kind = rng.random(offsets[-1])
    tastes = rng.random(offsets[-1]) < _share(taste, repeats + interest)
    free = _free_draws(rng, (ranks + 1.0) ** -zipf, group_offsets, lengths, tastes)
    again, follows = kind < repeats, (kind >= repeats) & (kind < repeats + interest)
    drawn = _follow(free, offsets, _successors(group_offsets), again, follows, rng.random(offsets[-1]), lag)
    outside = np.argsort(rng.random(items)).astype(np.int32)  # an index must say nothing of popularity or group
    return Sequences(
        items=outside[drawn],
        offsets=offsets,
        user_ids=Ids.of(f"u{user:0{len(str(users))}d}" for user in range(1, users + 1)),
        item_ids=Ids.of(f"i{item:0{len(str(items))}d}" for item in range(1, items + 1)),
        times=_times(rng, offsets),
        time_unit="s",
        titles=_titles(group_offsets, outside),
        about={"source": {"name": "synthetic"}, "knobs": knobs},
    )


def _check(knobs: dict[str, Any]) -> None:
    for name in ("users", "items", "lag"):
        if knobs[name] < 1:
            raise ConfigError(f"synthetic {name} is {knobs[name]}: give 1 or more")
    if not knobs["mean_length"] >= 1:
        raise ConfigError(f"synthetic mean_length is {knobs['mean_length']}: give 1 or more")
    if not 0 <= knobs["zipf"] <= 10:
        raise ConfigError(f"synthetic zipf is {knobs['zipf']}: give a number from 0 (all items alike) to 10")
    shares = [knobs[name] for name in ("taste", "interest", "repeats")]
    if min(shares) < 0 or sum(shares) > 1 + 1e-9:
        given = f"{shares[0]}, {shares[1]} and {shares[2]}"
        raise ConfigError(f"synthetic taste, interest and repeats are {given}: give shares from 0 that sum to 1 at most")


def _share(part: float, taken: float) -> float:
    """Return a share of all events as a share of those that remain."""
    return min(1.0, part / (1 - taken)) if taken < 1 else 0.0


def _lengths(rng: np.random.Generator, users: int, mean: float) -> np.ndarray:
    """Draw lengths with a heavy tail (log-logistic of shape 3), at least 1, (users,) int64."""
    u = rng.random(users)
    scale = mean * 3 * np.sin(np.pi / 3) / np.pi
    lengths: np.ndarray = np.rint(scale * (u / (1 - u)) ** (1 / 3)).astype(np.int64)
    return lengths.clip(min=1)


def _catalogue(rng: np.random.Generator, items: int) -> tuple[np.ndarray, np.ndarray]:
    """Deal items to groups of equal size; return the rank in popularity of each, group by group, and where groups begin."""
    n_groups = max(1, min(MAX_GROUPS, int((items / 2) ** 0.5)))
    group = (np.arange(items) % n_groups)[np.argsort(rng.random(items))]
    group_offsets = np.zeros(n_groups + 1, np.int64)
    np.cumsum(np.bincount(group, minlength=n_groups), out=group_offsets[1:])
    return np.argsort(group, kind="stable"), group_offsets


def _successors(group_offsets: np.ndarray) -> np.ndarray:
    """Return every item's successor, the next in a ring of neighbours in popularity within its group, (items,)."""
    place = np.arange(group_offsets[-1])
    start, end = (np.repeat(edge, np.diff(group_offsets)) for edge in (group_offsets[:-1], group_offsets[1:]))
    ring = start + (place - start) // CYCLE * CYCLE
    return np.where(place + 1 < np.minimum(ring + CYCLE, end), place + 1, ring)


def _free_draws(rng: np.random.Generator, weights: np.ndarray, group_offsets: np.ndarray, lengths: np.ndarray, tastes: np.ndarray) -> np.ndarray:
    """Draw an item by popularity for every event, where `tastes` out of a favourite group, (n_events,) int64."""
    upto = np.zeros(len(weights) + 1)
    np.cumsum(weights, out=upto[1:])
    favourites = (rng.random((len(lengths), FAVOURITES)) * (len(group_offsets) - 1)).astype(np.int64)
    user = np.repeat(np.arange(len(lengths)), lengths)
    drawn, wanted = np.empty(len(user), np.int64), np.arange(len(user))
    for _ in range(TRIES):
        group = favourites[user[wanted], (rng.random(len(wanted)) * FAVOURITES).astype(np.int64)]
        low = np.where(tastes[wanted], upto[group_offsets[group]], 0.0)
        high = np.where(tastes[wanted], upto[group_offsets[group + 1]], upto[-1])
        found = np.searchsorted(upto, low + rng.random(len(wanted)) * (high - low), side="right") - 1
        drawn[wanted] = np.minimum(found, len(weights) - 1)
        key = user * len(weights) + drawn
        by_key = np.argsort(key, kind="stable")
        wanted = np.sort(by_key[1:][key[by_key[1:]] == key[by_key[:-1]]])  # what the user was given before: draw again
    return drawn


def _follow(
    items: np.ndarray,
    offsets: np.ndarray,
    successor: np.ndarray,
    again: np.ndarray,
    follows: np.ndarray,
    back: np.ndarray,
    lag: int,
) -> np.ndarray:
    """Put repeats and successors in place, one step of all users at a time; `items` is changed and returned."""
    lengths = np.diff(offsets)
    longest_first = np.argsort(-lengths, kind="stable")
    starts, ends = offsets[:-1][longest_first], np.sort(lengths)
    for step in range(1, int(lengths.max())):
        active = len(ends) - int(np.searchsorted(ends, step, side="right"))
        here = starts[:active] + step
        repeated = here[again[here]]
        items[repeated] = items[repeated - step + (back[repeated] * step).astype(np.int64)]
        if step >= lag:
            following = here[follows[here]]
            items[following] = successor[items[following - lag]]
    return items


def _times(rng: np.random.Generator, offsets: np.ndarray) -> np.ndarray:
    """Draw times in seconds, (n_events,) int64: visits days apart, inside them minutes, no two of a user at once."""
    lengths = np.diff(offsets)
    between = np.repeat(SPAN / 2 / (1 + VISIT_SHARE * lengths), lengths)
    new_visit = rng.random(offsets[-1]) < VISIT_SHARE
    waiting = -np.log(1 - rng.random(offsets[-1]))
    gap = 1 + np.floor(waiting * np.where(new_visit, between, np.minimum(90.0, between)))
    gap[offsets[:-1]] = np.floor(rng.random(len(lengths)) * SPAN / 2)
    total = np.cumsum(gap.astype(np.int64))
    before = total[offsets[:-1]] - gap[offsets[:-1]].astype(np.int64)
    times: np.ndarray = START + total - np.repeat(before, lengths)
    return times


def _titles(group_offsets: np.ndarray, outside: np.ndarray) -> Ids:
    """Name the items, a kind of thing per group: 'Small Oak Lamp'."""
    looks, stuffs, things = _LOOKS.split(), _STUFFS.split(), _THINGS.split()
    names = [""] * len(outside)
    for group, (start, end) in enumerate(zip(group_offsets[:-1].tolist(), group_offsets[1:].tolist(), strict=True)):
        for nth, item in enumerate(outside[start:end].tolist()):
            edition, within = divmod(nth, len(looks) * len(stuffs))
            look = looks[(7 * within + 11 * group) % len(looks)]  # strides without a common factor: every pair comes up once
            stuff = stuffs[(within + within // len(looks) + 3 * group) % len(stuffs)]
            names[item] = f"{look} {stuff} {things[group]}" + (f" {edition + 1}" if edition else "")
    return Ids.of(names)
