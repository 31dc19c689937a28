"""Mini-batches: every event but a user's first is a target once, after what came before it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcarec.data.split import Part
from hcarec.training.batches import WAYS, Batches, shape_of

LENGTHS = st.lists(st.integers(0, 23), min_size=1, max_size=12)


def part_of(lengths: list[int]) -> Part:
    """Return users whose every event is an item of its own, which says where it stands."""
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return Part(np.arange(offsets[-1], dtype=np.int32), offsets)


@given(LENGTHS, st.integers(1, 5), st.integers(1, 9), st.integers(1, 4), st.integers(0, 5))
@pytest.mark.parametrize("way", WAYS)
def test_every_event_but_the_first_is_a_target_once(
    way: str, lengths: list[int], size: int, length: int, positions: int, epoch: int
) -> None:
    part, seen = part_of(lengths), []
    batches = Batches(part, way, size, length, positions, 3, epoch)
    for batch in batches:
        assert (
            1 <= len(batch.items) <= size and batch.items.shape[1] == batch.lengths.max() <= length
        )
        for row, step, target in zip(batch.rows, batch.steps, batch.targets, strict=True):
            read = batch.items[row, : step + 1]
            assert step < batch.lengths[row]
            assert (np.diff(read) == 1).all() and read[
                -1
            ] + 1 == target  # what came right before it
            assert np.searchsorted(part.offsets, read[0], "right") == np.searchsorted(
                part.offsets, target, "right"
            )  # of the same user
        assert (batch.items[np.arange(batch.items.shape[1]) >= batch.lengths[:, None]] == 0).all()
        seen += batch.targets.tolist()
    firsts = set(part.offsets[:-1].tolist())
    assert sorted(seen) == [event for event in range(part.offsets[-1]) if event not in firsts]


@given(LENGTHS, st.integers(1, 9))
def test_a_prefix_reads_all_that_fits(lengths: list[int], length: int) -> None:
    part = part_of(lengths)
    for batch in Batches(part, "prefixes", 4, length, 1, 0, 1):
        for row, (step, target) in enumerate(zip(batch.steps, batch.targets, strict=True)):
            user = np.searchsorted(part.offsets, target, "right") - 1
            assert step + 1 == batch.lengths[row] == min(length, target - part.offsets[user])


@given(LENGTHS, st.integers(1, 4))
def test_random_positions_come_a_few_at_a_time(lengths: list[int], positions: int) -> None:
    for batch in Batches(part_of(lengths), "positions", 3, 50, positions, 0, 1):
        counts = np.bincount(batch.rows, minlength=len(batch.items))
        assert (counts >= 1).all() and (counts <= positions).all()


@pytest.mark.parametrize("way", WAYS)
def test_batches_are_a_function_of_seed_and_epoch(way: str) -> None:
    part = part_of(np.random.default_rng(0).integers(1, 30, 200).tolist())

    def targets(seed: int, epoch: int) -> list[int]:
        return [
            target
            for batch in Batches(part, way, 16, 10, 2, seed, epoch)
            for target in batch.targets
        ]

    assert targets(1, 1) == targets(1, 1)
    assert targets(1, 1) != targets(1, 2) and targets(1, 1) != targets(2, 1)


def test_whole_sequences_of_like_lengths_stand_together() -> None:
    lengths = np.random.default_rng(1).integers(2, 100, 3000).tolist()
    batches = Batches(part_of(lengths), "sequences", 32, 200, 1, 0, 1)
    padded = sum(batch.items.size for batch in batches)
    assert padded < 1.1 * sum(length - 1 for length in lengths)


@given(LENGTHS, st.integers(1, 9), st.integers(1, 23), st.integers(1, 4))
@pytest.mark.parametrize("way", WAYS)
def test_a_filled_batch_has_its_shape_and_the_same_targets(
    way: str, lengths: list[int], size: int, length: int, positions: int
) -> None:
    for batch in Batches(part_of(lengths), way, size, length, positions, 3, 1):
        shape = shape_of(batch, way, size, length, positions)
        filled, (n, T) = batch.fill(shape), batch.items.shape
        assert filled.items.shape == (shape.sequences, shape.steps)
        assert filled.lengths.max() == shape.steps <= length
        assert filled.lengths.sum() == shape.events
        assert len(filled.targets) == len(filled.rows) == len(filled.steps) == shape.positions
        assert (filled.items[:n, :T] == batch.items).all() and filled.items[n:].sum() == 0
        assert (filled.lengths[:n] == batch.lengths).all()
        counts = filled.targets >= 0
        assert (filled.steps < filled.lengths[filled.rows]).all()
        for name in ("rows", "steps", "targets"):
            assert (getattr(filled, name)[counts] == getattr(batch, name)).all()


def test_few_shapes_occur() -> None:
    lengths = np.random.default_rng(0).integers(2, 400, 2000).tolist()
    for way, most in (("sequences", 60), ("prefixes", 12), ("positions", 12)):
        shapes = {
            shape_of(batch, way, 64, 50, 4)
            for epoch in range(2)
            for batch in Batches(part_of(lengths), way, 64, 50, 4, 0, epoch)
        }
        assert len(shapes) <= most, (way, len(shapes))
