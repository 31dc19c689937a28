"""Training by mini-batches: it learns, goes on bit for bit, and says clearly what it cannot do."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hcarec
from hcarec import Sequences, hardware, synthetic
from hcarec.errors import ConfigError, DeviceError, ModelError
from hcarec.settings import MinibatchSettings
from hcarec.training import train
from hcarec.training.minibatch import WHOLE_CATALOG, Minibatch, rate

Command = Callable[..., tuple[int, str, str]]
QUICK: dict[str, Any] = {
    "preset": "paper",
    "trainer": "minibatch",
    "d": 8,
    "batch_size": 32,
    "warmup": 10,
    "learning_rate": 0.02,
    "initial": "scaled",
    "compare": False,
    "threads": 1,
}
WINNER: dict[str, Any] = {
    "blocks": 1,
    "padding": "masked",
    "fusion": "residual",
    "scores": "cosine",
    "item_norm": True,
    "copy_window": 5,
    "input_dropout": 0.1,
    "hidden_dropout": 0.1,
    "output_dropout": 0.1,
}


SASREC: dict[str, Any] = {
    "model": "sasrec",
    "length": 10,
    "scores": "cosine",
    "item_norm": True,
    "copy_window": 5,
    "output_dropout": 0.1,
}


@pytest.fixture(scope="module")
def data() -> Sequences:
    return synthetic(users=300, items=60, mean_length=15, interest=0.9, taste=0.05, seed=4)


@pytest.fixture(scope="module")
def stored(data: Sequences, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("minibatch") / "data"
    data.save(path)
    return path


def ndcg(data: Sequences, **settings: Any) -> float:
    found = train(data, **{**QUICK, **settings}).about["metrics"]["ndcg@10"]
    return float(found)


@pytest.mark.parametrize("batches", ["sequences", "prefixes", "positions"])
def test_it_learns_what_follows(batches: str, data: Sequences) -> None:
    """On a log whose next event follows from the last one, all ways of making batches find it."""
    popular = train(data, model="pop", compare=False).about["metrics"]["ndcg@10"]
    assert (
        ndcg(
            data,
            model="gru",
            d=16,
            epochs=12 if batches == "prefixes" else 30,
            batches=batches,
            patience=0,
        )
        > 1.5 * popular
    )


@pytest.mark.parametrize("loss", ["cross-entropy", "sampled-softmax", "bpr-max", "bce"])
def test_every_loss_learns(loss: str, data: Sequences) -> None:
    popular = train(data, model="pop", compare=False).about["metrics"]["ndcg@10"]
    settings = {"model": "gru", "d": 16, "epochs": 25, "patience": 0, "loss": loss, "negatives": 40}
    assert ndcg(data, **settings) > 1.3 * popular


def test_the_options_learn_too(data: Sequences) -> None:
    popular = train(data, model="pop", compare=False).about["metrics"]["ndcg@10"]
    assert ndcg(data, model="hca-gru", d=16, epochs=30, patience=0, **WINNER) > 1.5 * popular


@pytest.mark.parametrize("batches", ["sequences", "prefixes", "positions"])
def test_sasrec_learns_what_follows(batches: str, data: Sequences) -> None:
    """With `length` below that of many sequences, which are cut into pieces."""
    popular = train(data, model="pop", compare=False).about["metrics"]["ndcg@10"]
    epochs = 12 if batches == "prefixes" else 30
    settings = {"d": 16, "epochs": epochs, "batches": batches, "patience": 0}
    assert ndcg(data, model="sasrec", length=10, **settings) > 1.5 * popular
    assert ndcg(data, **SASREC, **settings) > 1.5 * popular


def test_threads_change_no_bit_of_sasrec(data: Sequences, monkeypatch: pytest.MonkeyPatch) -> None:
    from hcarec.ops.hca import shards

    for limit in ("HALVED", "QUARTERED"):  # several shards in a batch
        monkeypatch.setattr(shards, limit, 40)
    one, two = (
        train(data, epochs=2, **{**QUICK, **SASREC, "threads": threads}) for threads in (1, 3)
    )
    assert all((one.theta[name] == two.theta[name]).all() for name in one.theta)


def test_the_same_seed_gives_the_same_bits(data: Sequences) -> None:
    one, two, other = (
        train(data, model="hca-gru", epochs=2, seed=seed, **QUICK, **WINNER) for seed in (1, 1, 2)
    )
    assert all((one.theta[name] == two.theta[name]).all() for name in one.theta)
    assert not (one.theta["U"] == other.theta["U"]).all()


def test_averaged_weights_are_those_that_are_kept(data: Sequences) -> None:
    kept = train(data, model="gru", epochs=2, ema=0.9, **QUICK)
    last = train(data, model="gru", epochs=2, ema=0.0, **QUICK)
    assert not np.allclose(kept.theta["U"], last.theta["U"], atol=1e-4)


# -- interruptions ---------------------------------------------------------------------------------

KILLED = """
import sys
from hcarec import Sequences
from hcarec.training import Callback, train, minibatch
minibatch.REPORT = 3

class Tell(Callback):
    def chunk(self, now, events_per_second):
        print(now.epoch, now.position, flush=True)

import json
settings = json.loads(sys.argv[3])
train(Sequences.open(sys.argv[1]), sys.argv[2], seed=7, checkpoint_seconds=0,
      callback=Tell(), resume=True, **settings)
"""


NETWORKS: dict[str, dict[str, Any]] = {
    "hca-gru": {**WINNER, "model": "hca-gru"},
    "sasrec": SASREC | {"counting": True},
}


def kill_and_resume(data: Path, folder: Path, kills: int, seed: int, network: str) -> None:
    """Kill training at random moments and resume until it ends: bit for bit the same."""
    settings = {**QUICK, **NETWORKS[network], "epochs": 4, "schedule": "cosine"}
    program = [sys.executable, "-c", KILLED, str(data)]
    given = json.dumps(settings)
    whole = subprocess.run([*program, str(folder / "whole"), given], capture_output=True, text=True)
    assert whole.returncode == 0, whole.stderr
    chance, out = random.Random(seed), folder / "cut"
    for _ in range(kills):
        command = [*program, str(out), given]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as run:
            assert run.stdout is not None
            while (line := run.stdout.readline()) and chance.random() < 0.8:
                pass
            time.sleep(chance.random() * 0.02)
            run.send_signal(signal.SIGKILL)
            _, error = run.communicate()
            assert "Traceback" not in error, error
        if not line and (out / "model.json").exists():
            break
    done = subprocess.run([*program, str(out), given], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    whole_bits, cut_bits = (
        (folder / name / "model.safetensors").read_bytes() for name in ("whole", "cut")
    )
    assert whole_bits == cut_bits


@pytest.mark.parametrize("network", NETWORKS)
def test_killed_and_resumed_equals_uninterrupted(
    network: str, stored: Path, tmp_path: Path
) -> None:
    kill_and_resume(stored, tmp_path, 3, 1, network)


@pytest.mark.soak
@pytest.mark.parametrize("network", NETWORKS)
def test_thirty_kills(network: str, stored: Path, tmp_path: Path) -> None:
    for seed in range(10):
        (tmp_path / str(seed)).mkdir()
        kill_and_resume(stored, tmp_path / str(seed), 3, seed, network)


def test_a_finished_run_goes_on_unless_its_schedule_has_ended(
    data: Sequences, tmp_path: Path
) -> None:
    train(data, tmp_path / "a", model="gru", epochs=4, **QUICK)
    train(data, tmp_path / "b", model="gru", epochs=2, **QUICK)
    train(data, tmp_path / "b", model="gru", epochs=4, resume=True, **QUICK)
    bits = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("a", "b")]
    assert bits[0] == bits[1]
    train(data, tmp_path / "c", model="gru", epochs=2, schedule="linear", **QUICK)
    with pytest.raises(
        ConfigError, match=r"--resume cannot go on: config.epochs is 2 in the checkpoint"
    ):
        train(data, tmp_path / "c", model="gru", epochs=4, schedule="linear", resume=True, **QUICK)


# -- what it cannot do -----------------------------------------------------------------------------


def test_the_paper_trainer_trains_the_paper_network_alone(
    stored: Path, tmp_path: Path, command: Command
) -> None:
    for setting, says in (("blocks=1", "blocks 1"), ("counting=true", "counting True")):
        code, _, error = command(
            "train", stored, "-o", tmp_path / "m", "--preset", "paper", "--set", setting
        )
        assert code == 2 and error.count("\n") == 1
        assert f"{says} is not the paper's" in error and "--trainer minibatch" in error
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"model": "bpr"}, "trainer 'minibatch' cannot train bpr: give user-sgd"),
        ({"model": "markov"}, "there is no setting 'trainer' of markov"),
        ({"model": "gru", "l2": 0.1}, "there is no setting 'l2' of gru"),
        ({"model": "gru", "loss": "hinge"}, "loss 'hinge' is not known"),
        ({"model": "gru", "batches": "users"}, "batches 'users' is not known"),
        ({"model": "gru", "item_norm": 1}, "item_norm is 1: give true or false"),
        (
            {"model": "gru", "input_dropout": 1.5},
            "input_dropout is 1.5: give a number from 0 to 0.99",
        ),
        *(
            ({"model": "sasrec", name: 3}, f"there is no setting '{name}' of sasrec")
            for name in ("window_x", "fusion", "padding", "attention_h", "l2")
        ),
        ({"model": "sasrec", "d": 9, "heads": 2}, "d is 9, which 2 heads cannot share evenly"),
        ({"model": "sasrec", "blocks": 0}, "blocks is 0: give a whole number of at least 1"),
        (
            {"model": "sasrec", "length": 5, "copy_window": 6},
            "copy_window is 6, but sasrec reads the last 5 events: give at most its length",
        ),
        (
            {"model": "sasrec", "length": 4, "counting": True},
            "length is 4, but counting reads the last 5 events: give a length of at least 5",
        ),
    ],
)
def test_settings_that_do_not_apply(settings: dict[str, Any], says: str, data: Sequences) -> None:
    with pytest.raises(ConfigError, match=says):
        train(data, preset="paper", trainer="minibatch", **settings)


def test_sasrec_is_trained_by_mini_batches_alone(
    stored: Path, tmp_path: Path, command: Command
) -> None:
    small = ("--preset", "paper", "--epochs", "1", "--set", "d=8", "--set", "length=10")
    out = tmp_path / "m"
    code, _, error = command("train", stored, "-o", out, "--model", "sasrec", *small)
    assert code == 0, error
    assert hcarec.load(out).config.as_dict()["trainer"] == "minibatch"
    wrong = ("--trainer", "user-sgd")
    code, _, error = command("train", stored, "-o", out, "--model", "sasrec", *small, *wrong)
    assert code == 2 and error.count("\n") == 1
    assert "trainer 'user-sgd' cannot train sasrec: give minibatch" in error


def test_a_device_that_is_missing(data: Sequences) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(ConfigError, match="device is cuda, but torch finds no GPU here"):
        train(data, model="gru", preset="paper", trainer="minibatch", device="cuda")
    with pytest.raises(ConfigError, match="this model is trained on the CPU"):
        train(data, model="gru", preset="paper", device="cuda")


def test_the_plan_says_what_computes(data: Sequences) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    notes: list[str] = []

    class Listen(hcarec.training.Callback):
        def planned(self, planned: Any, config: Any, resumed_at: int | None) -> None:
            notes.extend(planned.notes)

    for settings in ({"trainer": "minibatch"}, {"trainer": "minibatch", "loss": "bce"}, {}):
        plain = {"model": "gru", "preset": "paper", "epochs": 1, "compare": False}
        train(data, callback=Listen(), **plain | settings)
    torch_cpu = f"computing on the CPU (torch {torch.__version__}), layers by numba"
    assert notes == [f"{torch_cpu}, loss by numba", torch_cpu, "computing on the CPU"]


@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
def test_a_precision_that_the_device_lacks(precision: str, data: Sequences) -> None:
    with pytest.raises(ConfigError, match=f"precision is {precision}, which is for GPUs"):
        train(data, device="cpu", precision=precision, model="gru", **QUICK)


def test_a_loss_that_diverges_keeps_the_last_good_model(
    data: Sequences, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Minibatch._learn

    def wild(self: Minibatch, batch: Any, total: int) -> None:
        plain(self, batch, total)
        if self.progress.epoch == 3:
            self.loss.fill_(float("nan"))

    monkeypatch.setattr(Minibatch, "_learn", wild)
    with pytest.raises(
        ModelError,
        match=r"diverged in epoch 3 at batch \d+ of \d+: .*smaller learning rate.* [12] is kept",
    ):
        train(data, tmp_path / "m", model="gru", epochs=5, **QUICK)
    kept = hcarec.load(tmp_path / "m")
    assert kept.about["finished"] is False and np.isfinite(kept.theta["X"]).all()


def out_of_memory() -> Exception:
    import torch

    return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nSee the docs")


def unplugged() -> Exception:
    return RuntimeError("CUDA error: unspecified launch failure\nCUDA kernel errors might be ..")


def crowded() -> Exception:
    return RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate ..")


FAILURES = [
    (out_of_memory, "the GPU has no memory left in epoch 3: use smaller batches"),
    (unplugged, r"the GPU failed in epoch 3 \(CUDA error: unspecified launch failure\): once it"),
    (
        lambda: RuntimeError("DefaultCPUAllocator: can't allocate memory"),
        "the machine has no memory",
    ),
    (MemoryError, "the machine has no memory left in epoch 3"),
]


@pytest.mark.parametrize(("failure", "says"), FAILURES)
def test_a_device_that_fails_keeps_the_last_good_state(
    failure: Callable[[], Exception],
    says: str,
    data: Sequences,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = {**QUICK, "model": "gru", "epochs": 5, "checkpoint_seconds": 0, "patience": 0}
    plain, broken = Minibatch._learn, True

    def learn(self: Minibatch, batch: Any, total: int) -> Any:
        if broken and self.progress.epoch == 3:
            raise failure()
        return plain(self, batch, total)

    monkeypatch.setattr(Minibatch, "_learn", learn)
    with pytest.raises(
        DeviceError, match=rf"{says}.*--resume; the model of epoch [12] is kept"
    ) as told:
        train(data, tmp_path / "m", **options)
    assert "\n" not in str(told.value)
    kept = hcarec.load(tmp_path / "m")
    assert kept.about["finished"] is False and kept.about["metrics"]["ndcg@10"] > 0
    broken = False
    train(data, tmp_path / "m", resume=True, **options)
    train(data, tmp_path / "whole", **options)
    bits = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("m", "whole")]
    assert bits[0] == bits[1]


def test_a_device_that_fails_at_once(
    data: Sequences, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise out_of_memory()

    monkeypatch.setattr(Minibatch, "_learn", fail)
    with pytest.raises(DeviceError, match=r"no memory left in epoch 1: .*; nothing was written$"):
        train(data, tmp_path / "m", model="gru", epochs=2, **QUICK)
    assert not (tmp_path / "m").exists()
    monkeypatch.undo()
    train(data, tmp_path / "m", model="gru", epochs=2, **QUICK)
    monkeypatch.setattr(Minibatch, "restore", fail)  # the card, not the checkpoint
    with pytest.raises(DeviceError, match="no memory left while the checkpoint was read"):
        train(data, tmp_path / "m", model="gru", epochs=3, resume=True, **QUICK)


def test_a_mistake_of_ours_is_not_a_failure_of_a_device(
    data: Sequences, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("Expected all tensors to be on the same device, cuda:0 and cpu")

    monkeypatch.setattr(Minibatch, "_learn", fail)
    with pytest.raises(RuntimeError, match="on the same device"):
        train(data, model="gru", epochs=1, **QUICK)


@pytest.mark.parametrize(
    "what", [{"d": 65536}, {"batch_size": 10**6, "length": 100_000, "d": 8192}]
)
def test_what_cannot_fit_is_refused_before_the_run(
    what: dict[str, int], data: Sequences, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "memory", lambda: hardware.Memory(4 << 30, 4 << 30))
    says = r"needs about [\d.]+ GiB and 4\.0 GiB are free: use smaller batches .*a smaller d"
    with pytest.raises(ConfigError, match=says):
        train(data, tmp_path / "m", model="gru", **(QUICK | what))
    assert not (tmp_path / "m").exists()


def test_a_damaged_checkpoint_is_refused_in_one_line(data: Sequences, tmp_path: Path) -> None:
    from hcarec.training import checkpoint

    train(data, tmp_path / "m", model="gru", epochs=1, **QUICK)
    found = checkpoint.read(tmp_path / "m")
    assert found is not None and found.trainer is not None
    del found.trainer.tensors["optimizer.U.exp_avg"]
    checkpoint.write(tmp_path / "m", found)
    with pytest.raises(
        ModelError, match=r"the checkpoint .* is damaged \(optimizer.U.exp_avg is missing"
    ):
        train(data, tmp_path / "m", model="gru", epochs=2, resume=True, **QUICK)


def test_without_torch_it_asks_for_the_extra(stored: Path, tmp_path: Path) -> None:
    code = "import sys; sys.modules['torch'] = None; from hcarec.cli import main; main()"
    arguments = ["train", str(stored), "-o", str(tmp_path / "m"), "--preset", "paper"]
    arguments += ["--trainer", "minibatch"]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=os.environ
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert "mini-batch training" in done.stderr and "pip install 'hcarec[torch]'" in done.stderr


# -- what is decided -------------------------------------------------------------------------------


def test_a_large_catalog_is_sampled_and_the_plan_says_so() -> None:
    settled, note = Minibatch.settle(MinibatchSettings(), WHOLE_CATALOG, "cpu")
    assert isinstance(settled, MinibatchSettings) and (settled.loss, note) == (
        "cross-entropy",
        None,
    )
    settled, note = Minibatch.settle(MinibatchSettings(), WHOLE_CATALOG + 1, "cpu")
    assert isinstance(settled, MinibatchSettings) and settled.loss == "sampled-softmax"
    assert note is not None and "too many" in note


def test_the_learning_rate_rises_and_falls() -> None:
    one = MinibatchSettings(warmup=10, schedule="cosine")
    shares = [rate(one, step, 110) for step in range(111)]
    assert shares[0] == pytest.approx(0.1) and max(shares) == shares[10] == 1.0
    assert shares[60] == pytest.approx(0.5) and shares[110] == pytest.approx(0.0, abs=1e-12)
    assert rate(MinibatchSettings(warmup=0), 10**6, 10) == 1.0
