"""Mini-batches of a training part: whole sequences, every prefix, or a few random positions.

Every event but a user's first is a target once an epoch, whichever way is taken. The batches of an
epoch are a pure function of seed and epoch, so that a position in them is all that a checkpoint
needs to go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hcarec.data.split import Part

WAYS = ("sequences", "prefixes", "positions")
BUCKET = 50
"""Batches' worth of samples that are sorted by length together, so that little is padded."""


class Batch(NamedTuple):
    """Some sequences, padded on the right with item 0, and the positions that are trained on.

    items (B, T) int64, lengths (B,) int64; of position p the output after step `steps[p]` of
    sequence `rows[p]` is to predict `targets[p]`, all (P,) int64.
    """

    items: np.ndarray
    lengths: np.ndarray
    rows: np.ndarray
    steps: np.ndarray
    targets: np.ndarray

    def fill(self, shape: Shape) -> Batch:
        """Return the batch in this shape: sequences of item 0 and positions without a target added.

        Positions without a target have the target -1.
        """
        (n, T), short = self.items.shape, shape.events - int(self.lengths.sum())
        items = np.zeros((shape.sequences, shape.steps), np.int64)
        items[:n, :T] = self.items
        whole, rest = divmod(short, shape.steps)
        lengths = np.zeros(shape.sequences, np.int64)
        lengths[:n] = self.lengths
        lengths[n : n + whole] = shape.steps
        if rest:
            lengths[n + whole] = rest
        more = shape.positions - len(self.targets)
        rows = np.concatenate([self.rows, np.full(more, n)])
        steps = np.concatenate([self.steps, np.zeros(more, np.int64)])
        targets = np.concatenate([self.targets, np.full(more, -1)])
        return Batch(items, lengths, rows, steps, targets)


class Shape(NamedTuple):
    """A size that batches are filled up to, so that few shapes of batches occur.

    The longest sequence has all `steps`, the lengths add up to `events`.
    """

    sequences: int
    steps: int
    events: int
    positions: int


def shape_of(batch: Batch, way: str, size: int, length: int, positions: int) -> Shape:
    """Return the smallest shape that a batch of `size` samples of at most `length` events fits.

    Steps are cut into eighths of the longest sample, events into sixteenths of what a batch of
    such sequences holds.
    """
    steps = min(length, _up(batch.items.shape[1], -(-length // 8)))
    part = -(-size * steps // 16)
    events = _up(int(batch.lengths.sum()) + steps, part)  # room for one sequence of all steps
    per_sample = {"sequences": events, "prefixes": size, "positions": size * positions}
    return Shape(size + 1 + -(-part // steps), steps, events, per_sample[way])


def _up(number: int, part: int) -> int:
    """Round up to a multiple of `part`."""
    return -(-number // part) * part


class Samples(NamedTuple):
    """What an epoch goes through: sample s reads the events [begins[s], ends[s]) of the part.

    `first` (n + 1,) cuts `steps`, the steps of each sample that are trained on, counted from its
    beginning.
    """

    begins: np.ndarray
    ends: np.ndarray
    first: np.ndarray
    steps: np.ndarray

    def __len__(self) -> int:
        return len(self.begins)


def samples(
    part: Part, way: str, length: int, positions: int, random: np.random.Generator
) -> Samples:
    """Return the samples of an epoch; no sample reads more than `length` events.

    sequences: each user's events, cut into pieces where they are more, all steps trained on.
    prefixes: for each target the events before it, the last step trained on. positions: as
    sequences, but each piece once for every `positions` of its steps, drawn without repetition.
    """
    if way == "prefixes":
        return _prefixes(part, length)
    pieces = _pieces(part, length)
    return pieces if way == "sequences" else _random_positions(pieces, positions, random)


def _pieces(part: Part, length: int) -> Samples:
    """Cut the inputs of every user, all events but the last, into pieces of at most `length`."""
    inputs = np.maximum(part.lengths - 1, 0)
    per_user = -(-inputs // length)
    user = np.repeat(np.arange(len(part)), per_user)
    number = np.arange(len(user)) - np.repeat(np.cumsum(per_user) - per_user, per_user)
    begins = np.asarray(part.offsets)[user] + number * length
    ends = np.minimum(begins + length, np.asarray(part.offsets)[user] + inputs[user])
    first = _starts(ends - begins)
    return Samples(begins, ends, first, _counted(ends - begins))


def _prefixes(part: Part, length: int) -> Samples:
    """Make a sample of every event that another one follows."""
    inputs = np.maximum(part.lengths - 1, 0)
    user = np.repeat(np.arange(len(part)), inputs)
    start = np.asarray(part.offsets)[user]
    ends = start + _counted(inputs) + 1
    begins = np.maximum(start, ends - length)
    return Samples(begins, ends, np.arange(len(ends) + 1), ends - begins - 1)


def _random_positions(pieces: Samples, positions: int, random: np.random.Generator) -> Samples:
    """Deal the steps of every piece at random into groups of `positions`, a sample each."""
    sizes = np.diff(pieces.first)
    piece = np.repeat(np.arange(len(pieces)), sizes)
    steps = pieces.steps[np.lexsort((random.random(len(piece)), piece))]  # shuffled within a piece
    groups = -(-sizes // positions)
    owner = np.repeat(np.arange(len(pieces)), groups)
    number = np.arange(len(owner)) - np.repeat(np.cumsum(groups) - groups, groups)
    begin = pieces.first[owner] + number * positions
    first = np.append(begin, len(steps))
    latest = np.maximum.reduceat(steps, begin) if len(begin) else steps
    begins = pieces.begins[owner]
    return Samples(begins, begins + latest + 1, first, steps)


class Batches:
    """The batches of one epoch of a training part; `len` is their number."""

    def __init__(
        self, part: Part, way: str, size: int, length: int, positions: int, seed: int, epoch: int
    ) -> None:
        random = np.random.Generator(np.random.PCG64([seed, epoch, WAYS.index(way)]))
        self._items = np.asarray(part.items)
        self._samples = samples(part, way, length, positions, random)
        self._counts = np.diff(self._samples.first)
        # Whole sequences are grouped by length; other samples are mixed over all users.
        self._order = _order(self._samples, size, random, by_length=way == "sequences")
        self._size = size

    def __len__(self) -> int:
        return -(-len(self._order) // self._size)

    def __getitem__(self, number: int) -> Batch:
        """Return one batch."""
        chosen = self._order[number * self._size : (number + 1) * self._size]
        begins, lengths = (
            self._samples.begins[chosen],
            self._samples.ends[chosen] - self._samples.begins[chosen],
        )
        widest = int(lengths.max(initial=1))
        places = np.minimum(begins[:, None] + np.arange(widest), len(self._items) - 1)
        items = np.where(np.arange(widest) < lengths[:, None], self._items[places], 0).astype(
            np.int64
        )
        counts = self._counts[chosen]
        rows = np.repeat(np.arange(len(chosen)), counts)
        at = np.repeat(self._samples.first[chosen], counts) + _counted(counts)
        steps = self._samples.steps[at]
        targets = self._items[begins[rows] + steps + 1]
        return Batch(items, lengths, rows, steps, targets.astype(np.int64))

    def __iter__(self) -> Iterator[Batch]:
        return (self[number] for number in range(len(self)))


def _order(found: Samples, size: int, random: np.random.Generator, by_length: bool) -> np.ndarray:
    """Return the samples in a shuffled order; `by_length` makes batches of like lengths."""
    order = random.permutation(len(found))
    if not by_length:
        return order
    lengths = (found.ends - found.begins)[order]
    for begin in range(0, len(order), BUCKET * size):
        part = slice(begin, begin + BUCKET * size)
        order[part] = order[part][np.argsort(lengths[part], kind="stable")]
    whole = len(order) // size * size
    batches = order[:whole].reshape(-1, size)[random.permutation(whole // size)]
    return np.concatenate([batches.ravel(), order[whole:]])


def _starts(counts: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


def _counted(counts: np.ndarray) -> np.ndarray:
    """Return 0, 1, .. up to each count, one after another."""
    return np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
