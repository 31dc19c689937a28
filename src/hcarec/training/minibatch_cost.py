"""What an epoch of mini-batches takes on a CPU, from the sizes of its work alone.

The constants are seconds on one core of the machine that they were fitted on (see
`hcarec.training.speed` and benchmarks/train_minibatch.py), or bytes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hcarec.data.split import Part
from hcarec.hardware import Cost
from hcarec.models import Model
from hcarec.ops.hca.shards import shards_of
from hcarec.settings import MinibatchSettings

# The network, forward and backward; the first three run on all threads where a batch is large.
WEIGHT = 5.5e-11
"""An event by a parameter of the layers."""
LAYER, LEVEL = 3.1e-9, 1.21e-8
"""An event by d, for each layer, and for each level of attention in it."""
PADDED, ATTENDED = 1.3e-8, 2.2e-10
"""Self-attention: an event by d for each block, padded and cut into heads, and by what it sees."""
EVENT, ROW = 8.7e-7, 5.9e-9
"""An event that is read, and its vector by d: looked up, packed and unpacked."""
ITEM_GRADIENT = 8.8e-10
"""A number of the item vectors' gradient."""
COPY = 7.5e-10
"""A target by the copy term's window by d."""

# The loss.
PRODUCT, LOGIT = 2.4e-11, 1.14e-9
"""A target by an item of the catalog: by d, and its exponential; on all threads."""
CATALOG, TARGET = 5.7e-9, 5.2e-9
"""A number of the item vectors, laid out anew, and of the targets' queries."""
SAMPLED_PRODUCT, SAMPLED = 5.7e-11, 1.0e-8
"""A target by a negative, where losses are of pairs: by d, and its share of the loss."""
CACHED, UNCACHED = 4_000_000, 1.42e-8
"""Scores of negatives that the caches hold, and what each costs in addition where they do not."""

UPDATE = 9.1e-10
"""A parameter in a step of AdamW, clipping and averaging."""
STEP, NARROW = 1.4e-3, 6.0e-3
"""A step beside all that, and what it takes to number its items, where some are sampled."""

TORCH = 170 << 20
"""Bytes of torch itself, and of what it compiles and keeps."""
COPIES = 10
"""Copies of the parameters: gradients, moments, averages, the best ones, a checkpoint's."""
ACTIVATIONS, FFN = 22, 7
"""Vectors of d that the largest batch keeps of an event; more for a block, by its FFN's width."""
COPY_ENTRIES, SCORES = 20, 4.4
"""Numbers kept of a target for each place of the copy term's window, and for each negative."""
AT_ONCE = 384
"""Positions whose exponentials cross-entropy holds at once."""


class Work(NamedTuple):
    """An epoch's size: steps, events read and targets, and events read by the largest batch.

    `attended` is the length of the sample that an event is read in, on average over events.
    """

    steps: int
    read: float
    targets: int
    largest: float
    attended: float


def work(settings: MinibatchSettings, part: Part) -> Work:
    """Return the size of an epoch, that of random positions as it is on average."""
    inputs = np.maximum(part.lengths - 1, 0).astype(np.int64)
    length, targets = settings.length, int(inputs.sum())
    if settings.batches == "prefixes":
        short = np.minimum(inputs, length).astype(np.float64)
        samples = targets
        read = float((short * (short + 1) / 2 + (inputs - short) * length).sum())
        squares = short * (short + 1) * (2 * short + 1) / 6 + (inputs - short) * length**2
        attended = float(squares.sum()) / max(read, 1.0)
    else:
        pieces = np.concatenate(
            [np.full(int((inputs // length).sum()), length), inputs % length]
        )  # whole ones and what is left
        pieces = pieces[pieces > 0]
        samples, read = len(pieces), float(targets)
        attended = float(np.square(pieces.astype(np.float64)).sum()) / max(read, 1.0)
        if settings.batches == "positions":
            k = np.minimum(settings.positions, pieces)
            groups = -(-pieces // settings.positions)
            # The latest of k positions out of n is expected at k (n + 1) / (k + 1).
            samples, read = int(groups.sum()), float((groups * k * (pieces + 1) / (k + 1)).sum())
    steps = -(-samples // settings.batch_size)
    largest = settings.batch_size * read / max(samples, 1)
    if settings.batches == "sequences":  # sorted by length
        largest = float(np.sort(pieces)[-settings.batch_size :].sum())
    return Work(max(steps, 1), read, targets, largest, attended)


def estimate(model: Model, part: Part, n_items: int, threads: int) -> Cost:
    """Estimate the seconds of an epoch and the bytes that it takes beside parameters and data."""
    settings = model.config.training
    assert isinstance(settings, MinibatchSettings)
    epoch, shapes = work(settings, part), model.shapes(n_items, len(part))
    seconds = (
        _network_seconds(model, shapes, epoch, threads)
        + _loss_seconds(settings, shapes["X"], epoch, threads)
        + epoch.steps * (STEP + UPDATE * _numbers(shapes))
    )
    return Cost(seconds, _memory(model, settings, shapes, epoch))


def _numbers(shapes: dict[str, tuple[int, ...]]) -> int:
    return sum(math.prod(shape) for shape in shapes.values())


def _scores_all(settings: MinibatchSettings) -> bool:
    return settings.loss in ("auto", "cross-entropy")


def _network_seconds(
    model: Model, shapes: dict[str, tuple[int, ...]], epoch: Work, threads: int
) -> float:
    (n_items, d), read = shapes["X"], epoch.read
    dense, layers = _numbers(shapes) - n_items * d, _layers(model)
    levels = sum(width > 1 for width in model.windows)
    shards = shards_of(int(read / epoch.steps))
    attention = PADDED + ATTENDED * epoch.attended if _attends(model) else 0.0
    parallel = read * (WEIGHT * dense + d * layers * (LAYER + LEVEL * levels + attention))
    serial = read * (EVENT + ROW * d) + epoch.steps * ITEM_GRADIENT * n_items * d
    copied = epoch.targets * _copy_window(model) * d
    return parallel / min(threads, shards) + serial + COPY * copied


def _loss_seconds(
    settings: MinibatchSettings, X: tuple[int, ...], epoch: Work, threads: int
) -> float:
    (n_items, d), targets = X, epoch.targets
    if _scores_all(settings):
        parallel = targets * n_items * (PRODUCT * d + LOGIT)
        return parallel / threads + d * (epoch.steps * CATALOG * n_items + TARGET * targets)
    negatives = settings.negatives
    scored, steps = targets * negatives, epoch.steps
    laid_out = steps * NARROW + d * (steps * CATALOG * negatives + TARGET * targets)
    if settings.loss == "sampled-softmax":
        return scored * (PRODUCT * d + LOGIT) / threads + laid_out
    far = UNCACHED if scored / steps > CACHED else 0.0
    return scored * (SAMPLED_PRODUCT * d + SAMPLED + far) + laid_out


def _attends(model: Model) -> bool:
    """Say whether every event attends to all before it."""
    return hasattr(model.config.network, "heads")


def _layers(model: Model) -> int:
    return max(1, getattr(model.config.network, "blocks", 1))


def _copy_window(model: Model) -> int:
    return int(getattr(model.config.network, "copy_window", 0))


def _memory(
    model: Model, settings: MinibatchSettings, shapes: dict[str, tuple[int, ...]], epoch: Work
) -> int:
    (n_items, d), numbers = shapes["X"], COPIES * _numbers(shapes)
    blocks = getattr(model.config.network, "blocks", 0) * getattr(model.config.network, "ffn", 0)
    numbers += int(epoch.largest * d * (ACTIVATIONS + FFN * blocks))
    targets = epoch.largest
    if settings.batches != "sequences":
        each = settings.positions if settings.batches == "positions" else 1
        targets = min(targets, settings.batch_size * each)
    numbers += int(targets * COPY_ENTRIES * _copy_window(model))
    if settings.loss in ("bpr-max", "bce"):
        numbers += int(targets * settings.negatives * SCORES)
    else:
        scored = n_items if _scores_all(settings) else settings.negatives
        numbers += scored * (AT_ONCE + 3 * d)
    return TORCH + 4 * numbers
