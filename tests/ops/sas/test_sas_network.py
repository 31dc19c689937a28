"""SASRec in torch against the reference: values and all gradients, option by option."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from sas_cases import N_ITEMS, network_of, random_theta
from torch import Tensor

from hcarec.ops import reference
from hcarec.ops.hca import shards
from hcarec.ops.sas.packing import pack
from hcarec.ops.sas.parameters import Network
from hcarec.ops.sas.torch import SASNetwork

LENGTHS = [7, 1, 3, 12, 2, 12, 1]
EVERYTHING: dict[str, Any] = {
    "scores": "cosine",
    "item_norm": True,
    "output_norm": True,
    "copy_window": 5,
    "ffn": 3,
    "blocks": 3,
    "heads": 3,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "one head": {"heads": 1},
    "six heads": {"heads": 6},
    "odd size": {"d": 15, "heads": 5},
    "size of one": {"d": 1, "heads": 1},
    "one block": {"blocks": 1},
    "exact length": {"length": 12},
    "wide FFN": {"ffn": 5},
    "norm of items": {"item_norm": True},
    "norm of outputs": {"output_norm": True},
    "cosine": {"scores": "cosine"},
    "copy term": {"copy_window": 4},
    "copy term beyond the start": {"copy_window": 13},
    "everything": EVERYTHING,
}


@pytest.fixture(autouse=True)
def poison(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fill tensors that are not initialized with NaN, so that reading them cannot go unseen."""
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def batch(lengths: list[int], width: int, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Draw items (B, width), few enough that they repeat; the padding is drawn as well."""
    items = np.random.default_rng(seed).integers(0, N_ITEMS, (len(lengths), width))
    return torch.from_numpy(items), torch.tensor(lengths)


def positions(lengths: Tensor) -> tuple[Tensor, Tensor]:
    """List all positions, row by row."""
    listed = [(row, step) for row, n in enumerate(lengths.tolist()) for step in range(n)]
    rows, steps = torch.tensor(listed).T
    return rows, steps


def dense_scores(model: SASNetwork, items: Tensor, lengths: Tensor, o: Tensor) -> Tensor:
    """Return the scores of all items at all positions, (P, n_items)."""
    rows, steps = positions(lengths)
    own = o[rows, steps]
    scores = model.queries(own) @ model.item_vectors().T
    corrections = model.corrections(items, rows, steps, own)
    if corrections is None:
        return scores
    found, offsets, values = corrections
    for begin, end in pairwise(offsets.tolist()):
        assert end > begin and (found[begin:end].diff() > 0).all()
    position = torch.repeat_interleave(offsets.diff())
    return scores.index_put((position, found.long()), values, accumulate=True)


def expected(network: Network, theta: dict[str, Tensor], items: Tensor, lengths: Tensor) -> Any:
    """Return outputs (P, d) and scores (P, n_items) by the reference, one sequence at a time."""
    outputs, scores = [], []
    for row, n in enumerate(lengths.tolist()):
        outputs.append(reference.sas_outputs(theta, network, items[row, :n]))
        scores.append(reference.score_all(theta, network, items[row, :n], outputs[-1]))
    return torch.cat(outputs), torch.cat(scores)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_values_and_all_gradients(options: dict[str, Any]) -> None:
    network = network_of(**options)
    theta = random_theta(network)
    items, lengths = batch(LENGTHS, 13)
    truth = {name: torch.tensor(value, requires_grad=True) for name, value in theta.items()}
    true_outputs, true_scores = expected(network, truth, items, lengths)
    weights = torch.randn(true_scores.shape, dtype=torch.float64)
    (true_scores * weights).sum().backward()

    model = SASNetwork(network, theta)
    o = model(items, lengths)
    assert o.shape == (*items.shape, network.d) and torch.isfinite(o).all()
    assert not o[~(torch.arange(13) < lengths[:, None])].any()
    scores = dense_scores(model, items, lengths, o)
    (scores * weights).sum().backward()
    torch.testing.assert_close(o[positions(lengths)], true_outputs, rtol=0, atol=1e-12)
    torch.testing.assert_close(scores, true_scores, rtol=0, atol=1e-11)
    for name, value in truth.items():
        own, true = model.named()[name].grad, value.grad
        assert own is not None and true is not None, name
        scale = max(1.0, true.abs().max().item())
        torch.testing.assert_close(own, true, rtol=0, atol=1e-11 * scale, msg=name)


def test_every_gradient_counts() -> None:
    """A gradient that is zero by itself would compare equal to one that was forgotten."""
    network = network_of(**EVERYTHING, length=12)
    model = SASNetwork(network, random_theta(network))
    items, lengths = batch(LENGTHS, 13)
    scores = dense_scores(model, items, lengths, model(items, lengths))
    (scores * torch.randn(scores.shape)).sum().backward()
    for name, value in model.named().items():
        assert value.grad is not None and value.grad.abs().max() > 1e-6, name
    assert model.tensors["P"].grad.abs().sum(1).min() > 0  # every position is reached


def test_an_output_does_not_depend_on_what_comes_after_it_or_on_the_batch() -> None:
    network = network_of(**EVERYTHING)
    model = SASNetwork(network, random_theta(network))
    lengths = [3, 0, 9, 1] * 5
    items, sizes = batch(lengths, 9)
    together = model(items, sizes)
    for row, n in enumerate(lengths[:4]):
        for end in range(1, n + 1):
            alone = model(items[row : row + 1, :end], torch.tensor([end]))
            torch.testing.assert_close(together[row, :end], alone[0], rtol=0, atol=1e-13)
    assert not model(items[1:2], sizes[1:2]).any()


def test_a_sequence_longer_than_the_network_is_an_error_of_ours() -> None:
    network = network_of(length=4)
    with pytest.raises(AssertionError):
        SASNetwork(network, random_theta(network))(*batch([5], 5))


@pytest.mark.parametrize("place", ["input", "hidden", "output"])
def test_dropout_of_everything_shows_its_place(place: str) -> None:
    network = network_of(**{f"{place}_dropout": 1.0, "output_norm": True})
    theta = random_theta(network)
    items, lengths = batch([6], 6)
    truth = {name: torch.tensor(value) for name, value in theta.items()}

    def drop(here: str, rows: Tensor) -> Tensor:
        return torch.zeros_like(rows) if here == place else rows

    model = SASNetwork(network, theta)
    dropped = reference.sas_outputs(truth, network, items[0], drop)
    torch.testing.assert_close(model(items, lengths)[0], dropped, rtol=0, atol=1e-12)
    whole = reference.sas_outputs(truth, network, items[0])
    torch.testing.assert_close(model.eval()(items, lengths)[0], whole, rtol=0, atol=1e-12)
    assert (whole - dropped).abs().max() > 0.01


@pytest.mark.parametrize("positions_in_a_shard", [1, 20, 10**9])
def test_shards_have_the_gradients_of_the_whole(
    positions_in_a_shard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = network_of(**EVERYTHING)
    items, lengths = batch([5, 9, 0, 2] * 6, 9)
    found = []
    for size, threads in ((10**9, 1), (positions_in_a_shard, 2)):
        for limit in ("POSITIONS", "HALVED", "QUARTERED"):
            monkeypatch.setattr(shards, limit, size)
        model = SASNetwork(network, random_theta(network), threads)
        o = model(items, lengths)
        (o * torch.linspace(-1, 1, o.numel()).view_as(o)).sum().backward()
        found.append({name: value.grad for name, value in model.named().items()} | {"o": o})
    for parameter, value in found[0].items():
        if value is not None:
            torch.testing.assert_close(found[1][parameter], value, rtol=1e-10, atol=1e-11)


def test_threads_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "POSITIONS", 50)
    dropouts = {"hidden_dropout": 0.3, "input_dropout": 0.3, "output_dropout": 0.3}
    network = network_of(**EVERYTHING, **dropouts)
    items, lengths = batch([5, 9, 2] * 30, 9)
    found = []
    for threads in (1, 2, 3, 1):
        torch.manual_seed(0)
        model = SASNetwork(network, random_theta(network, dtype=np.float32), threads)
        with shards.one_torch_thread():
            scores = dense_scores(model, items, lengths, model(items, lengths))
            scores.square().sum().backward()
        found.append({name: value.grad for name, value in model.named().items()})
    for other in found[1:]:
        for parameter, value in found[0].items():
            assert value is not None and torch.equal(value, other[parameter]), parameter


def test_packing_lists_every_event() -> None:
    lengths, rows = np.array([2, 0, 5, 3]), np.array([2, 0, 1])
    packing = pack(lengths, rows, 6)
    assert packing.shape == (3, 5)
    assert packing.places.tolist() == [12, 13, 14, 15, 16, 0, 1]
    assert packing.steps.tolist() == [0, 1, 2, 3, 4, 0, 1]
    assert packing.padded.tolist() == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_gpu_agrees_with_the_cpu_and_repeats_its_bits(dtype: Any) -> None:
    torch.use_deterministic_algorithms(False)  # cuBLAS would ask for a setting of its own
    network = network_of(**EVERYTHING)
    theta, (items, lengths) = random_theta(network, dtype=dtype), batch(LENGTHS, 13)
    models = [SASNetwork(network, theta), *(SASNetwork(network, theta).cuda() for _ in range(2))]
    for model in models:
        there = model.tensors["X"].device
        scores = dense_scores(
            model, items.to(there), lengths.to(there), model(items.to(there), lengths.to(there))
        )
        scores.square().mean().backward()
    for name, value in models[0].named().items():
        one, two = (model.named()[name].grad for model in models[1:])
        assert value.grad is not None and one is not None and torch.equal(one, two), name
        scale = max(1.0, value.grad.abs().max().item())
        error = (one.cpu() - value.grad).abs().max().item()
        assert error <= (1e-11 if dtype == np.float64 else 1e-4) * scale, name
