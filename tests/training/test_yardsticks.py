"""The last line of a training run: what counting alone reaches under the same protocol."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hcarec
from hcarec import Sequences, synthetic
from hcarec.hardware import Memory
from hcarec.training import resources, yardsticks
from hcarec.training.yardsticks import words

Command = Callable[..., tuple[int, str, str]]
PAPER = ("--preset", "paper")


@pytest.fixture(scope="module")
def data() -> Sequences:
    return synthetic(users=120, items=60, mean_length=15, interest=0.9, taste=0.05, seed=4)


@pytest.fixture(scope="module")
def stored(data: Sequences, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("yardsticks") / "data"
    data.save(path)
    return path


@pytest.mark.parametrize("rules", [{}, {"split": "leave-one-out", "hide_seen": True}])
def test_they_are_those_of_the_models_themselves(rules: dict[str, Any], data: Sequences) -> None:
    about = hcarec.train(data, model="gru", preset="paper", epochs=1, **rules).about
    found = about["yardsticks"]
    assert found["metric"] == ("ndcg@10" if rules else "ndcg@20")
    assert found["skipped"] == {}
    for title, name in (("Markov", "markov"), ("POP", "pop")):
        own = hcarec.train(data, model=name, **rules).about
        assert own["protocol"] == about["protocol"]
        assert found["models"][title] == {k: own["metrics"][k] for k in found["models"][title]}
        assert title not in own["yardsticks"]["models"]


def test_the_last_line_says_plainly_who_wins(
    stored: Path, tmp_path: Path, command: Command
) -> None:
    for model, settings, verdict in (
        ("gru", (*PAPER, "--epochs", "1"), "GRU does NOT beat Markov, which only counts"),
        ("markov", (), "Markov beats it"),
    ):
        code, out, _ = command("train", stored, "-o", tmp_path / model, "--model", model, *settings)
        last = out.replace("\n", " ").strip()
        assert code == 0 and last.endswith(verdict), out
        manifest = json.loads((tmp_path / model / "model.json").read_text())
        figure = manifest["metrics"]["ndcg@20"]
        title = manifest["title"]
        assert f"NDCG@20 in %: {title} {100 * figure:.3f}, " in last
        code, out, _ = command("info", tmp_path / model)
        assert verdict in " ".join(out.split())


def test_after_a_refit_the_line_is_that_of_the_evaluated_run(
    stored: Path, tmp_path: Path, command: Command
) -> None:
    code, out, _ = command(
        "train", stored, "-o", tmp_path / "m", "--model", "gru", *PAPER, "--epochs", "2", "--refit"
    )
    assert code == 0 and "does NOT beat Markov" in out.replace("\n", " ")
    manifest = json.loads((tmp_path / "m" / "model.json").read_text())
    assert manifest["protocol"]["split"]["split"] == "none" and manifest["metrics"] == {}
    assert manifest["evaluated"]["yardsticks"]["models"].keys() == {"Markov", "POP"}


def test_nothing_is_compared_where_nothing_is_tested(data: Sequences) -> None:
    model = hcarec.train(data, model="gru", preset="paper", epochs=1, split="none")
    assert "yardsticks" not in model.about


def test_words() -> None:
    found = {"metric": "ndcg@20", "models": {"Markov": {"ndcg@20": 0.2}, "POP": {"ndcg@20": 0.1}}}
    assert words("GRU", {"ndcg@20": 0.3}, found).endswith(
        "Markov 20.000, POP 10.000: GRU beats both"
    )
    assert words("GRU", {"ndcg@20": 0.2}, found).endswith("GRU is no better than Markov")
    line = "GRU does NOT beat Markov or POP, which only count"
    assert words("GRU", {"ndcg@20": 0.05}, found).endswith(line)
    skipped = {**found, "models": {"POP": {"ndcg@20": 0.1}}, "skipped": {"Markov": "it is large"}}
    assert words("GRU", {"ndcg@20": 0.2}, skipped).endswith(
        ": GRU beats it; not compared with Markov: it is large"
    )


def test_what_takes_too_long_is_skipped_and_said(
    data: Sequences, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "RANKING", 1.0)  # far above a minute
    found = hcarec.train(data, model="gru", preset="paper", epochs=1).about["yardsticks"]
    assert found["models"] == {}
    assert all(
        reason.endswith("more than a tenth of the run") for reason in found["skipped"].values()
    )
    assert found["skipped"].keys() == {"Markov", "POP"}
    parts = hcarec.split(data)
    n = int(parts.evaluated.sum())
    slow = resources.counted(hcarec.Markov(), parts.history, data.n_items, n).seconds
    assert slow > yardsticks.MINUTE
    allowed = yardsticks._too_much(hcarec.Markov(), data, parts, 11 * slow)
    assert allowed is None  # less than a tenth of so long a run


def test_what_does_not_fit_into_memory_is_skipped_and_said(
    data: Sequences, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yardsticks.hardware, "memory", lambda: Memory(1 << 30, 1 << 10))
    reason = yardsticks._too_much(hcarec.Markov(), data, hcarec.split(data), 1.0)
    assert reason is not None and reason.startswith("it needs about") and "are free" in reason
    assert yardsticks._too_much(hcarec.Pop(), data, hcarec.split(data), 1.0) is None


def test_ctrl_c_during_the_yardsticks_keeps_the_model(
    stored: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(hcarec.Pop, "initialize", stopped)
    arguments = ("train", stored, "-o", tmp_path / "m", "--model", "gru", *PAPER)
    code, out, _ = command(*arguments, "--epochs", "2")
    assert code == 0
    assert "not compared with Markov: interrupted; not compared with POP: interrupted" in " ".join(
        out.split()
    )
    model = hcarec.load(tmp_path / "m")
    assert model.about["finished"] and model.about["metrics"]["ndcg@20"] > 0
    assert model.about["yardsticks"] == {
        "metric": "ndcg@20",
        "models": {},
        "skipped": {"Markov": "interrupted", "POP": "interrupted"},
    }


def test_after_several_runs_the_line_is_about_their_mean(
    stored: Path, tmp_path: Path, command: Command
) -> None:
    arguments = ("train", stored, "-o", tmp_path / "m", "--model", "gru", *PAPER)
    code, out, _ = command(*arguments, "--epochs", "1", "--runs", "2")
    assert code == 0
    seeds = [json.loads((tmp_path / "m" / f"seed-{n}" / "model.json").read_text()) for n in (0, 1)]
    mean = sum(seed["metrics"]["ndcg@20"] for seed in seeds) / 2
    last = " ".join(out.split())
    assert f"NDCG@20 in %: GRU {100 * mean:.3f}, Markov" in last and last.endswith(
        "which only counts"
    )


def test_a_foreign_model_json_does_no_harm() -> None:
    for found in (
        {},
        {"metric": 3, "models": [], "skipped": 1},
        {"metric": "ndcg@20", "models": {"POP": 5}},
    ):
        assert words("GRU", {"ndcg@20": 0.2}, found) == ""
