"""Paired comparison: the right figures, tests that agree with an independent library, and refusals."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from hcarec import synthetic
from hcarec.errors import InputError, ProtocolError
from hcarec.evaluation import Result
from hcarec.ids import Ids
from hcarec.metrics import KS, evaluate_ranking
from hcarec.protocol import protocol

verbs: Any = import_module("hcarec.comparison")  # the package's own name may be the function
Command = Callable[..., tuple[int, str, str]]
DATA = synthetic(users=5, items=30)
RULES = protocol(DATA, {"split": "ratio", "ratio": 0.8, "validation": True}, "validation", False)


def result(path: Path, seed: int, n_users: int = 150, skill: float = 0.0, rules: dict[str, Any] | None = None, auc: bool = True) -> Path:
    """Write a result of made-up rankings; the more skill, the more often a test item is put first. Some users have no negatives."""
    n_items = 60
    shared, own = np.random.default_rng(7), np.random.default_rng(seed)
    lengths = shared.integers(1, 9, n_users)
    test = np.concatenate([shared.choice(n_items, length, replace=False) for length in lengths])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    top = np.stack([own.permutation(n_items)[:20] for _ in range(n_users)])
    for user in np.flatnonzero(own.random(n_users) < skill):
        item = test[offsets[user]]
        top[user] = [item, *[other for other in top[user] if other != item]][:20]
    scores = own.random(len(test)) + skill
    negative = own.random(len(test))
    negative[: offsets[min(3, n_users)]] = np.nan
    sampled = {"test_scores": scores, "negative_scores": negative} if auc else {}
    exact = {"below": own.integers(0, 41, len(test)), "n_negatives": np.where(np.arange(n_users) < 3, 0, 40)} if auc else {}
    metrics, users = evaluate_ranking(top, test, offsets, n_items, **sampled, **exact)
    metrics = {name: value if np.isfinite(value) else None for name, value in metrics.items()}
    Result(f"model {seed}", metrics, users, Ids.of(f"u{n}" for n in range(n_users)), rules or RULES, {}).save(path)
    return path


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return result(tmp_path / "a.json", 1), result(tmp_path / "b.json", 2, skill=0.3)


# -- figures -------------------------------------------------------------------------------------------------------------------


def test_figures_are_those_of_the_results(pair: tuple[Path, Path]) -> None:
    a, b = (json.loads(path.read_text()) for path in pair)
    found = verbs.compare(*pair)
    assert [row.metric for row in found.rows] == [f"{name}@{k}" for name in ("recall", "map", "ndcg", "mrr", "user_recall") for k in KS] + ["auc", "auc_exact"]
    for row in found.rows:
        assert (row.a, row.b) == (pytest.approx(a[row.metric]), pytest.approx(b[row.metric]))
        assert row.difference == pytest.approx(row.b - row.a)
        assert row.relative == pytest.approx((row.b - row.a) / row.a)
        assert row.low <= row.difference <= row.high
        assert row.p <= row.p_holm <= 1
    assert (found.a, found.b, found.users) == ("model 1", "model 2", 150)


def test_a_better_model_is_found_and_the_other_way_round(pair: tuple[Path, Path]) -> None:
    there, back = verbs.compare(*pair), verbs.compare(*pair[::-1])
    verdicts = {row.metric: row.verdict for row in there.rows}
    assert verdicts["ndcg@5"] == verdicts["mrr@20"] == verdicts["auc"] == "B is higher"
    assert verdicts["auc_exact"] == "no difference shown"
    for one, other in zip(there.rows, back.rows, strict=True):
        assert one.difference == pytest.approx(-other.difference)
        assert (one.low, one.high) == (pytest.approx(-other.high), pytest.approx(-other.low))
        assert one.p == other.p
    shown = sum(row.verdict == "B is higher" for row in there.rows)
    assert f"of 22 metrics over 150 users, B (model 2) is higher than A (model 1) in {shown}, lower in 0" in there.summary


def test_the_same_seed_gives_the_same_figures(pair: tuple[Path, Path]) -> None:
    assert verbs.compare(*pair) == verbs.compare(*pair)
    assert verbs.compare(*pair) != verbs.compare(*pair, seed=1)


def test_a_result_does_not_differ_from_itself(pair: tuple[Path, Path]) -> None:
    for row in verbs.compare(pair[0], pair[0]).rows:
        assert (row.difference, row.low, row.high, row.p, row.p_holm, row.verdict) == (0, 0, 0, 1, 1, "no difference shown")


def test_order_of_users_in_the_files_does_not_matter(pair: tuple[Path, Path]) -> None:
    import polars as pl

    before = verbs.compare(*pair)
    file = pair[1].with_suffix(".users.parquet")
    pl.read_parquet(file).reverse().write_parquet(file)
    for one, other in zip(before.rows, verbs.compare(*pair).rows, strict=True):
        assert one.difference == pytest.approx(other.difference)
        assert (one.low, one.high, one.p) == (pytest.approx(other.low), pytest.approx(other.high), other.p)


def test_results_without_auc(tmp_path: Path) -> None:
    found = verbs.compare(result(tmp_path / "a.json", 1, auc=False), result(tmp_path / "b.json", 2, auc=False))
    assert len(found.rows) == 20


# -- statistics ----------------------------------------------------------------------------------------------------------------


def test_the_interval_agrees_with_scipy() -> None:
    random = np.random.default_rng(0)
    below = random.integers(1, 9, 120).astype(float)
    d = random.normal(0.2, 1, 120) * below

    def ratio(x: np.ndarray, y: np.ndarray, axis: int = -1) -> np.ndarray:
        return x.sum(axis) / y.sum(axis)

    low, high = verbs.bootstrap(np.stack([d, d], 1), np.stack([below, np.ones(120)], 1), resamples=20_000)
    for n, weights in enumerate((below, np.ones(120))):
        theirs = scipy.stats.bootstrap((d, weights), ratio, paired=True, vectorized=True, n_resamples=20_000, method="percentile", rng=1).confidence_interval
        width = theirs.high - theirs.low
        assert abs(low[n] - theirs.low) < 0.05 * width
        assert abs(high[n] - theirs.high) < 0.05 * width


@pytest.mark.parametrize("shift", [0.0, 0.15, 0.4])
def test_the_p_value_agrees_with_scipy(shift: float) -> None:
    d = np.random.default_rng(3).normal(shift, 1, 80)
    d[::4] = 0  # many users are equal under both models
    mine = verbs.sign_flip(d[:, None], flips=50_000)[0]
    theirs = scipy.stats.permutation_test((d,), np.sum, permutation_type="samples", n_resamples=50_000, vectorized=False, rng=2).pvalue
    assert mine == pytest.approx(theirs, abs=0.01)


@pytest.mark.parametrize("d", [[1.0, 2.0, 3.0], [1.0, -1.0, 0.5, 0.0], [0.1] * 8])
def test_the_p_value_of_few_users_is_the_exact_one(d: list[float]) -> None:
    """All ways that the signs can fall, counted."""
    values = np.array(d)
    signs = np.array(np.meshgrid(*[[-1, 1]] * len(d))).reshape(len(d), -1).T
    exact = (np.abs(signs @ values) >= abs(values.sum()) - 1e-9).mean()
    assert verbs.sign_flip(values[:, None], flips=40_000)[0] == pytest.approx(exact, abs=0.015)


def test_a_test_of_nothing_cries_wolf_as_often_as_it_says() -> None:
    """Of 400 comparisons of equals about 5% come out below 0.05."""
    random = np.random.default_rng(4)
    p = verbs.sign_flip(random.standard_t(3, (60, 400)) * random.integers(0, 2, (60, 400)), flips=2_000)
    assert 0.02 < (p < 0.05).mean() < 0.085


def test_intervals_hold_what_they_should() -> None:
    """Of 300 intervals for a known mean about 95% hold it."""
    random = np.random.default_rng(5)
    low, high = verbs.bootstrap(random.exponential(1.0, (150, 300)), np.ones((150, 300)))
    assert 0.90 < ((low <= 1) & (high >= 1)).mean() < 0.98


def test_memory_does_not_grow_with_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little room there is, the figures are the same: only fewer draws are made at a time."""
    d, below = np.random.default_rng(6).normal(0.1, 1, (50, 3)), np.ones((50, 3))
    whole = verbs.bootstrap(d, below, resamples=200), verbs.sign_flip(d, flips=200)
    monkeypatch.setattr(verbs, "ROOM", 50)
    np.testing.assert_allclose(verbs.bootstrap(d, below, resamples=200), whole[0])
    np.testing.assert_allclose(verbs.sign_flip(d, flips=200), whole[1])


def test_holm_by_hand() -> None:
    np.testing.assert_allclose(verbs.holm(np.array([0.01, 0.04, 0.03, 0.005])), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(verbs.holm(np.array([0.5, 0.9])), [1.0, 1.0])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_holm_keeps_the_order_and_never_lowers(values: list[float]) -> None:
    p = np.array(values)
    adjusted = verbs.holm(p)
    assert (adjusted >= p - 1e-15).all() and (adjusted <= 1).all()
    assert (np.diff(adjusted[np.argsort(p, kind="stable")]) >= 0).all()
    assert adjusted.min() == pytest.approx(min(1, len(p) * p.min()))


# -- refusals --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seen": "hidden"}, "seen is 'kept' in .*a.json and 'hidden' in .*b.json"),
        ({"selection": "best-epoch-on-test"}, "selection is"),
        ({"split": {"split": "ratio", "ratio": 0.9, "validation": True}}, "split.ratio is 0.8 in"),
        ({"data": {"fingerprint": "other"}}, r"data.events is .*and 3 more"),
    ],
)
def test_different_protocols_are_refused_by_name(tmp_path: Path, change: dict[str, Any], message: str, command: Command) -> None:
    a, b = result(tmp_path / "a.json", 1), result(tmp_path / "b.json", 2, rules=RULES | change)
    with pytest.raises(ProtocolError, match=message):
        verbs.compare(a, b)
    code, out, err = command("compare", a, b)
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_other_users_are_refused(tmp_path: Path) -> None:
    a = result(tmp_path / "a.json", 1)
    with pytest.raises(ProtocolError, match="not the same users"):
        verbs.compare(a, result(tmp_path / "b.json", 1, n_users=149))


def test_files_that_are_no_results(pair: tuple[Path, Path], tmp_path: Path) -> None:
    a, b = pair
    users = a.with_suffix(".users.parquet")
    with pytest.raises(InputError, match=r"cannot read .*nowhere.json.*hcarec evaluate"):
        verbs.compare(a, tmp_path / "nowhere.json")
    for content, message in (("{", "is not JSON"), ("[1]", "is not a result"), ('{"ndcg@5": 1}', "has no protocol")):
        (tmp_path / "foreign.json").write_text(content)
        with pytest.raises(InputError, match=message):
            verbs.compare(tmp_path / "foreign.json", b)
    kept = users.read_bytes()
    users.write_bytes(b"PAR1 not really")
    with pytest.raises(InputError, match="is not a Parquet file"):
        verbs.compare(a, b)
    users.unlink()
    with pytest.raises(InputError, match=r"a.users.parquet' is missing"):
        verbs.compare(a, b)
    users.write_bytes(kept)
    shutil.copy(b.with_suffix(".users.parquet"), users)
    with pytest.raises(InputError, match=r"a.users.parquet' does not belong to .*recall@5"):
        verbs.compare(a, b)


# -- the command -----------------------------------------------------------------------------------------------------------------


def test_json_and_table(pair: tuple[Path, Path], command: Command) -> None:
    code, out, err = command("compare", *pair, "--json", "-")
    assert (code, err) == (0, "")
    found, expected = json.loads(out), verbs.compare(*pair)
    assert found == json.loads(json.dumps(expected.as_dict()))
    assert found["metrics"]["ndcg@20"]["difference"] == expected.rows[11].difference
    code, out, _ = command("compare", *pair)
    assert code == 0
    for row in expected.rows:
        line = next(line for line in out.splitlines() if line.startswith(f"{row.metric} "))
        assert f"{row.difference:+.4f}" in line and f"{row.low:+.4f} .. {row.high:+.4f}" in line and row.verdict in line
    assert expected.summary in out


def test_a_metric_that_is_zero_has_no_relative_difference(tmp_path: Path, command: Command) -> None:
    a, b = result(tmp_path / "a.json", 5, n_users=1), result(tmp_path / "b.json", 2, n_users=1, skill=1.0)
    code, out, _ = command("compare", a, b, "--json", "-")
    assert code == 0
    found = json.loads(out)["metrics"]
    assert found["recall@5"]["a"] == 0 and found["recall@5"]["relative"] is None
    assert "auc" not in found  # the only user has no negatives
