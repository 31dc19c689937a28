"""The network in torch against the reference: values and all gradients, option by option."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hcarec.ops import cpu, reference
from hcarec.ops.hca import shards
from hcarec.ops.hca.copying import trimmed
from hcarec.ops.hca.parameters import Network, initialize, shapes
from hcarec.ops.hca.torch import HCANetwork

N_ITEMS = 11
LENGTHS = [7, 1, 3, 12, 2, 12, 1]
BOTH = {"w_x": 3, "w_h": 4}
OPTIONS: dict[str, dict[str, Any]] = {
    "paper": BOTH,
    "gru": {"w_x": 1, "w_h": 1},
    "x-level alone": {"w_x": 3, "w_h": 1},
    "h-level alone": {"w_x": 1, "w_h": 3},
    "windows wider than any sequence": {"w_x": 15, "w_h": 14},
    "size of whole vectors": BOTH | {"d": 16},
    "size above whole vectors": BOTH | {"d": 17},
    "size of one": BOTH | {"d": 1},
    "residual": BOTH | {"fusion": "residual"},
    "masked": BOTH | {"padding": "masked"},
    "dot product on inputs": BOTH | {"attention_x": "dot"},
    "dot product on hidden states": BOTH | {"attention_h": "dot"},
    "both dot products, masked": BOTH
    | {"attention_x": "dot", "attention_h": "dot", "padding": "masked"},
    "block": BOTH | {"blocks": 1},
    "two blocks": BOTH | {"blocks": 2, "ffn": 2},
    "three blocks of bare cells": {"w_x": 1, "w_h": 1, "blocks": 3, "ffn": 1},
    "norm of items": BOTH | {"item_norm": True},
    "norm of outputs": BOTH | {"output_norm": True},
    "cosine": BOTH | {"scores": "cosine"},
    "copy term": BOTH | {"copy_window": 4},
    "copy term of one event": BOTH | {"copy_window": 1},
    "copy term beyond the start": BOTH | {"copy_window": 20},
    "winner": BOTH
    | {"fusion": "residual", "padding": "masked", "blocks": 1, "scores": "cosine"}
    | {"item_norm": True, "output_norm": True, "d": 8},
    "everything": BOTH
    | {"fusion": "residual", "padding": "masked", "blocks": 2, "scores": "cosine"}
    | {"attention_x": "dot", "attention_h": "dot", "item_norm": True, "output_norm": True}
    | {"copy_window": 5, "ffn": 3},
}


@pytest.fixture(autouse=True)
def poison(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fill tensors that are not initialized with NaN, so that reading them cannot go unseen."""
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def random_theta(network: Network, seed: int = 0, dtype: Any = np.float64) -> dict[str, np.ndarray]:
    """Draw every parameter, those that start at zero or one too."""
    rng = np.random.default_rng(seed)
    named = shapes(network, N_ITEMS).items()
    return {name: rng.uniform(-0.7, 0.7, shape).astype(dtype) for name, shape in named}


def batch(lengths: list[int], width: int, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Draw items (B, width), few enough that they repeat; the padding is drawn as well."""
    items = np.random.default_rng(seed).integers(0, N_ITEMS, (len(lengths), width))
    return torch.from_numpy(items), torch.tensor(lengths)


def positions(lengths: Tensor) -> tuple[Tensor, Tensor]:
    """List all positions, row by row."""
    listed = [(row, step) for row, n in enumerate(lengths.tolist()) for step in range(n)]
    rows, steps = torch.tensor(listed).T
    return rows, steps


def dense_scores(model: HCANetwork, items: Tensor, lengths: Tensor, o: Tensor) -> Tensor:
    """Return the scores of all items at all positions, (P, n_items)."""
    rows, steps = positions(lengths)
    own = o[rows, steps]
    scores = model.queries(own) @ model.item_vectors().T
    corrections = model.corrections(items, rows, steps, own)
    assert (corrections is None) == (model.network.copy_window == 0)
    if corrections is None:
        return scores
    found, offsets, values = corrections
    assert found.dtype == torch.int32 and offsets.dtype == torch.int64
    assert offsets[0] == 0 and offsets[-1] == len(found) == len(values)
    for begin, end in pairwise(offsets.tolist()):
        assert end > begin and (found[begin:end].diff() > 0).all()
    position = torch.repeat_interleave(offsets.diff())
    return scores.index_put((position, found.long()), values, accumulate=True)


def expected(network: Network, theta: dict[str, Tensor], items: Tensor, lengths: Tensor) -> Any:
    """Return outputs (P, d) and scores (P, n_items) by the reference, one sequence at a time."""
    outputs, scores = [], []
    for row, n in enumerate(lengths.tolist()):
        outputs.append(reference.network_outputs(theta, network, items[row, :n]))
        scores.append(reference.score_all(theta, network, items[row, :n], outputs[-1]))
    return torch.cat(outputs), torch.cat(scores)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_values_and_all_gradients(options: dict[str, Any]) -> None:
    network = Network(**{"d": 5, **options})
    theta = random_theta(network)
    items, lengths = batch(LENGTHS, 13)
    truth = {name: torch.tensor(value, requires_grad=True) for name, value in theta.items()}
    true_outputs, true_scores = expected(network, truth, items, lengths)
    weights = torch.randn(true_scores.shape, dtype=torch.float64)
    (true_scores * weights).sum().backward()

    model = HCANetwork(network, theta)
    o = model(items, lengths)
    assert o.shape == (*items.shape, network.d) and torch.isfinite(o).all()
    scores = dense_scores(model, items, lengths, o)
    (scores * weights).sum().backward()
    torch.testing.assert_close(o[positions(lengths)], true_outputs, rtol=0, atol=1e-12)
    torch.testing.assert_close(scores, true_scores, rtol=0, atol=1e-11)
    gradients = model.named()
    for name, value in truth.items():
        own, true = gradients[name].grad, value.grad
        assert own is not None and true is not None, name
        scale = max(1.0, true.abs().max().item())
        torch.testing.assert_close(own, true, rtol=0, atol=1e-11 * scale, msg=name)


def test_every_option_is_tested_and_every_gradient_counts() -> None:
    """A gradient that is zero by itself would compare equal to one that was forgotten."""
    network = Network(**{"d": 5, **OPTIONS["everything"]})
    model = HCANetwork(network, random_theta(network))
    items, lengths = batch(LENGTHS, 13)
    scores = dense_scores(model, items, lengths, model(items, lengths))
    (scores * torch.randn(scores.shape)).sum().backward()
    for name, value in model.named_parameters():
        assert value.grad is not None and value.grad.abs().max() > 1e-6, name


@pytest.mark.parametrize("name", ["paper", "winner", "everything"])
def test_a_batch_equals_single_sequences(name: str) -> None:
    network = Network(**{"d": 5, **OPTIONS[name]})
    model = HCANetwork(network, random_theta(network))
    lengths = [3, 0, 9, 1] * 17  # more sequences than a kernel takes together, and an empty one
    items, sizes = batch(lengths, 9)
    together = model(items, sizes)
    for row, n in enumerate(lengths[:8]):
        if n:
            alone = model(items[row : row + 1, :n], sizes[row : row + 1])
            torch.testing.assert_close(together[row, :n], alone[0], rtol=0, atol=1e-13)
    nothing = model(items[1:2], sizes[1:2])
    assert not nothing.any()


@pytest.mark.parametrize(("w_x", "w_h"), [(1, 1), (5, 1), (1, 5), (5, 5)])
def test_the_papers_network_equals_the_cpu_engine(w_x: int, w_h: int) -> None:
    network = Network(d=20, w_x=w_x, w_h=w_h)
    theta = initialize(network, N_ITEMS, 3)
    items, lengths = batch([40, 3, 17, 1], 40)
    flat = torch.cat([items[row, :n] for row, n in enumerate(lengths.tolist())])
    offsets = np.concatenate([[0], np.cumsum(lengths.numpy())])
    encoded = cpu.encode(theta, flat.numpy(), offsets, w_x, w_h)
    o = HCANetwork(network, theta)(items, lengths)
    assert o.dtype == torch.float32
    last = o[torch.arange(4), lengths - 1].detach()
    np.testing.assert_allclose(last, encoded, rtol=0, atol=3e-6)


def test_scaled_levels_start_at_zero_effect() -> None:
    options: dict[str, Any] = {"fusion": "residual", "initial": "scaled", "blocks": 2}
    both = Network(d=8, w_x=3, w_h=4, **options)
    neither = Network(d=8, w_x=1, w_h=1, **options)
    items, lengths = batch(LENGTHS, 12)
    theta, plain = (initialize(network, N_ITEMS, 5) for network in (both, neither))
    with_levels = HCANetwork(both, theta)(items, lengths)
    torch.testing.assert_close(with_levels, HCANetwork(neither, plain)(items, lengths))
    theta["2.F"] = random_theta(both, dtype=np.float32)["2.F"]
    moved = HCANetwork(both, theta)(items, lengths)
    assert (with_levels - moved).abs().max() > 0.01


@pytest.mark.parametrize("place", ["input", "hidden", "output"])
def test_dropout_of_everything_shows_its_place(place: str) -> None:
    options = {f"{place}_dropout": 1.0, "blocks": 2, "output_norm": True}
    network = Network(d=5, w_x=3, w_h=3, **options)
    theta = random_theta(network)
    items, lengths = batch([6], 6)
    truth = {name: torch.tensor(value) for name, value in theta.items()}

    def drop(here: str, rows: Tensor) -> Tensor:
        return torch.zeros_like(rows) if here == place else rows

    model = HCANetwork(network, theta)
    assert model.training
    dropped = reference.network_outputs(truth, network, items[0], drop)
    torch.testing.assert_close(model(items, lengths)[0], dropped, rtol=0, atol=1e-12)
    whole = reference.network_outputs(truth, network, items[0])
    torch.testing.assert_close(model.eval()(items, lengths)[0], whole, rtol=0, atol=1e-12)
    assert (whole - dropped).abs().max() > 0.01


def test_dropout_is_reproducible_and_keeps_the_mean() -> None:
    network = Network(d=8, w_x=1, w_h=1, output_dropout=0.25)
    model = HCANetwork(network, random_theta(network))
    items, lengths = batch([50] * 200, 50)
    outputs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outputs.append(model(items, lengths).detach())
    assert torch.equal(outputs[0], outputs[1]) and not torch.equal(outputs[0], outputs[2])
    whole = model.eval()(items, lengths).detach()
    kept = outputs[0] != 0
    assert 0.74 < kept.double().mean() < 0.76
    torch.testing.assert_close(outputs[0][kept], whole[kept] / 0.75)


def test_dropout_has_the_gradient_of_its_own_mask() -> None:
    network = Network(d=8, w_x=1, w_h=1, output_dropout=0.5)
    model = HCANetwork(network, random_theta(network))
    items, lengths = batch([9], 9)
    with torch.no_grad():
        model.tensors["W"].zero_()
    o = model(items, lengths)
    kept = o.detach() != 0
    weights = torch.where(kept, 0.0, torch.randn(o.shape, dtype=o.dtype))
    (o * weights).sum().backward()  # only what was dropped has a weight
    assert all(not value.grad.any() for value in model.parameters() if value.grad is not None)


def test_parameters_come_back_under_their_names() -> None:
    network = Network(**{"d": 5, **OPTIONS["everything"]})
    theta = random_theta(network, dtype=np.float32)
    for value in theta.values():
        value.flags.writeable = False
    model = HCANetwork(network, theta)
    with torch.no_grad():
        model.tensors["2_U"] += 1
    back = model.theta()
    assert list(back) == list(theta)
    for name, value in theta.items():
        assert back[name].dtype == np.float32
        np.testing.assert_array_equal(back[name], value + 1 if name == "2.U" else value)


def test_a_step_again_gives_the_same_bits() -> None:
    dropouts = {"hidden_dropout": 0.3, "input_dropout": 0.3, "output_dropout": 0.3}
    network = Network(**{"d": 5, **dropouts, **OPTIONS["everything"]})
    model = HCANetwork(network, random_theta(network, dtype=np.float32))
    items, lengths = batch([5, 9, 2] * 30, 9)
    found = []
    for _ in range(2):
        torch.manual_seed(0)
        model.zero_grad()
        scores = dense_scores(model, items, lengths, model(items, lengths))
        scores.square().sum().backward()
        found.append({name: value.grad for name, value in model.named().items()})
    for name, value in found[0].items():
        assert value is not None and torch.equal(value, found[1][name]), name


@pytest.mark.parametrize("name", ["paper", "winner", "everything"])
@pytest.mark.parametrize("positions_in_a_shard", [1, 20, 10**9])
def test_shards_have_the_gradients_of_the_whole(
    name: str, positions_in_a_shard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = Network(**{"d": 5, **OPTIONS[name]})
    items, lengths = batch([5, 9, 0, 2] * 6, 9)
    found = []
    for size, threads in ((10**9, 1), (positions_in_a_shard, 2)):
        for limit in ("POSITIONS", "HALVED", "QUARTERED"):
            monkeypatch.setattr(shards, limit, size)
        model = HCANetwork(network, random_theta(network), threads)
        o = model(items, lengths)
        (o * torch.linspace(-1, 1, o.numel()).view_as(o)).sum().backward()
        found.append({name: value.grad for name, value in model.named().items()} | {"o": o})
        with torch.no_grad():
            assert torch.equal(model(items, lengths), o)
    for parameter, value in found[0].items():
        if value is not None:
            torch.testing.assert_close(found[1][parameter], value, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("name", ["paper", "winner", "everything"])
def test_threads_change_no_bit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "POSITIONS", 50)
    network = Network(**{"d": 5, "hidden_dropout": 0.3, "input_dropout": 0.3, **OPTIONS[name]})
    items, lengths = batch([5, 9, 2] * 30, 9)
    found = []
    for threads in (1, 2, 3):
        torch.manual_seed(0)
        model = HCANetwork(network, random_theta(network, dtype=np.float32), threads)
        with shards.one_torch_thread():
            scores = dense_scores(model, items, lengths, model(items, lengths))
            scores.square().sum().backward()
        found.append({name: value.grad for name, value in model.named().items()})
    for other in found[1:]:
        for parameter, value in found[0].items():
            assert torch.equal(value, other[parameter]), parameter


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", ["paper", "winner", "everything"])
def test_a_gpu_agrees_with_the_cpu(name: str, dtype: Any) -> None:
    torch.use_deterministic_algorithms(False)  # cuBLAS would ask for a setting of its own
    network = Network(**{"d": 5, **OPTIONS[name]})
    theta, (items, lengths) = random_theta(network, dtype=dtype), batch(LENGTHS, 13)
    model, twin = HCANetwork(network, theta), HCANetwork(network, theta).cuda()
    o, other = model(items, lengths), twin(items.cuda(), lengths.cuda())
    tolerance = {"rtol": 0, "atol": 1e-11 if dtype == np.float64 else 1e-4}
    torch.testing.assert_close(other.cpu(), o, **tolerance)
    at, there = positions(lengths), tuple(part.cuda() for part in positions(lengths))
    found = model.corrections(items, *at, o[at])
    same = twin.corrections(items.cuda(), *there, other[there])
    loss, twin_loss = model.queries(o[at]).square().sum(), twin.queries(other[there]).square().sum()
    if found is not None and same is not None:
        same = trimmed(same)
        assert torch.equal(found[0], same[0].cpu()) and torch.equal(found[1], same[1].cpu())
        torch.testing.assert_close(same[2].cpu(), found[2], **tolerance)
        loss, twin_loss = loss + found[2].square().sum(), twin_loss + same[2].square().sum()
    loss.backward()
    twin_loss.backward()
    for parameter, value in model.named().items():
        own, true = twin.named()[parameter].grad, value.grad
        assert (own is None) == (true is None)
        if own is not None and true is not None:
            scale = max(1.0, true.abs().max().item())
            error = (own.cpu() - true).abs().max().item()
            assert error <= tolerance["atol"] * scale, parameter
