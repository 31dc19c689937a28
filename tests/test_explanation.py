"""Attention weights as the paper has them, effects as they are measured, and whether they agree."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from hcarec import BPR, GRU, HCAGRU, Pop, Random, SASRec, Sequences, synthetic
from hcarec.cli.explain_view import render
from hcarec.errors import ConfigError, DataError
from hcarec.ids import Ids
from hcarec.plots import attention as draw
from hcarec.terminal_plots import heat_colour, heat_row, shade

verbs: Any = import_module("hcarec.explanation")  # the package's own name `explain` is the function
Command = Callable[..., tuple[int, str, str]]
WINDOWS = [(1, 1), (4, 1), (1, 3), (4, 3), (2, 6)]


@pytest.fixture(scope="module")
def data() -> Sequences:
    return synthetic(users=60, items=50, mean_length=15)


@pytest.fixture(scope="module")
def models(data: Sequences) -> dict[tuple[int, int], HCAGRU]:
    made = {(w_x, w_h): GRU(preset="paper", d=7) if w_x == w_h == 1 else HCAGRU(preset="paper", d=7, window_x=w_x, window_h=w_h) for w_x, w_h in WINDOWS}
    return {windows: model.fit(data, epochs=3, seed=5) for windows, model in made.items()}


def ids(data: Sequences, items: list[int]) -> list[str | int]:
    return [data.item_ids[item] for item in items]


# -- the weights, against the paper's equations written out ---------------------------------------------------------------


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def by_hand(model: HCAGRU, items: list[int]) -> tuple[Any, Any]:
    """Compute the last weights from Eqs. 1 to 4, with zero vectors before the start, in float64."""
    w_x, w_h = model.windows
    T = {name: value.astype(np.float64) for name, value in model.theta.items()}
    d = T["X"].shape[1]
    steps = max(w_h, len(items))
    x = [np.zeros(d)] * (w_x - 1 + steps - len(items)) + [T["X"][item] for item in items]
    before = steps - len(items)
    h, hidden, rows = np.zeros(d), [], []
    for t in range(steps):
        window = x[t : t + w_x]
        g = [T["U"][i] @ window[-1] + T["b"][i] for i in range(3)]
        if w_x > 1:
            e = np.array([T["r_x"] @ np.tanh(T["Q_x"] @ row) for row in window])
            a = np.exp(e) / np.exp(e).sum()
            rows.append(a.tolist())
            x_c = sum(weight * row for weight, row in zip(a, window, strict=True))
            g = [g[i] + T["V"][i] @ x_c for i in range(3)]
        if t >= before:
            z, r = sigmoid(g[0] + T["W"][0] @ h), sigmoid(g[1] + T["W"][1] @ h)
            h = (1 - z) * h + z * np.tanh(g[2] + T["W"][2] @ (r * h))
        hidden.append(h)
    a_h = None
    if w_h > 1:
        e = np.array([T["r_h"] @ np.tanh(T["Q_h"] @ row) for row in hidden[-w_h:]])
        a_h = (np.exp(e) / np.exp(e).sum()).tolist()
    return (rows[-w_h:] if w_x > 1 else None), a_h


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("length", [1, 2, 4, 12])
def test_weights_are_the_paper_s(models: dict[tuple[int, int], HCAGRU], data: Sequences, windows: tuple[int, int], length: int) -> None:
    model, items = models[windows], (np.arange(length) * 7 % 50).tolist()
    found = verbs.explain(model, ids(data, items))
    a_x, a_h = by_hand(model, items)
    w_x, w_h = windows
    assert (found.a_x is None, found.a_h is None) == (w_x == 1, w_h == 1)
    if found.a_x is not None:
        assert np.shape(found.a_x) == (w_h, w_x)
        np.testing.assert_allclose(found.a_x, a_x, rtol=1e-9)
        for row in found.a_x[: max(0, w_h - length)]:
            assert row == [1 / w_x] * w_x  # a step before the start: equal weights
    if found.a_h is not None:
        assert np.shape(found.a_h) == (w_h,)
        np.testing.assert_allclose(found.a_h, a_h, rtol=1e-9)
    for row in [*(found.a_x or []), *([found.a_h] if found.a_h else [])]:
        assert sum(row) == pytest.approx(1)


@pytest.mark.parametrize("windows", WINDOWS)
def test_combined_weights_are_the_whole_attention(models: dict[tuple[int, int], HCAGRU], data: Sequences, windows: tuple[int, int]) -> None:
    found = verbs.explain(models[windows], ids(data, [3, 1, 4, 1, 5, 9, 2, 6]))
    weights = [event.weight for event in found.events]
    assert len(weights) == max(5, sum(windows) - 1)
    if windows == (1, 1):
        assert set(weights) == {None}
        return
    assert sum(weights) == pytest.approx(1)  # the history is longer than the windows, so no share goes to the time before it
    reach = sum(windows) - 1
    assert weights[: len(weights) - reach] == [0.0] * (len(weights) - reach)
    if found.a_x is None:
        assert weights[-windows[1] :] == pytest.approx(found.a_h)
    elif found.a_h is None:
        assert weights[-windows[0] :] == pytest.approx(found.a_x[0])


def test_combined_weights_by_hand() -> None:
    a_x, a_h = [[0.5, 0.5], [0.9, 0.1]], [0.25, 0.75]
    expected = [0.25 * 0.5, 0.25 * 0.5 + 0.75 * 0.9, 0.75 * 0.1]
    np.testing.assert_allclose(verbs.combined(a_x, a_h, 3), expected)
    np.testing.assert_allclose(verbs.combined(a_x, a_h, 5), [0, 0, *expected])
    np.testing.assert_allclose(verbs.combined(a_x, a_h, 2), expected[1:])
    assert verbs.combined(None, None, 4) is None


# -- the effects -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("item", [None, 11])
def test_effects_are_what_leaving_out_does(models: dict[tuple[int, int], HCAGRU], data: Sequences, windows: tuple[int, int], item: int | None) -> None:
    model, items = models[windows], [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]
    found = verbs.explain(model, ids(data, items), None if item is None else data.item_ids[item])
    if item is None:
        assert found.recommended == model.recommend(ids(data, items), 1)[0]
    target = model.item_ids.find(found.recommended.item)

    def score(history: list[int]) -> float:
        return float(model.encode(np.array(history, np.int32), np.array([0, len(history)])).vectors[0] @ model.theta["X"][target])

    assert found.recommended.score == pytest.approx(score(items), abs=1e-5)
    first = len(items) - len(found.events)
    for place, event in enumerate(found.events, first):
        assert event.item == data.item_ids[items[place]]
        assert event.effect == pytest.approx(score(items) - score(items[:place] + items[place + 1 :]), abs=1e-5)


def test_a_history_of_one(models: dict[tuple[int, int], HCAGRU], data: Sequences) -> None:
    found = verbs.explain(models[4, 3], ids(data, [8]))
    assert len(found.events) == 1
    assert found.events[0].effect == pytest.approx(found.recommended.score)  # of nothing at all every item has score 0
    assert found.agreement is None
    assert "too little to compare" in found.verdict


# -- agreement ---------------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(-3, 3), st.floats(-5, 5)), min_size=3, max_size=12))
def test_rank_correlation_is_scipy_s(pairs: list[tuple[int, float]]) -> None:
    a, b = np.array([pair[0] for pair in pairs], float), np.array([pair[1] for pair in pairs])
    found = verbs.spearman(a, b)
    if len(set(a)) == 1 or len(set(b)) == 1:
        assert found is None
    else:
        assert found == pytest.approx(scipy.stats.spearmanr(a, b).statistic, abs=1e-12)


def test_agreement_in_words() -> None:
    weights = np.ones(9)
    said = {value: verbs._verdict(weights, value, 9) for value in (1.0, 0.7, 0.5, 0.0, -0.2, -0.9, None)}
    assert "agree well" in said[1.0] and "agree well" in said[0.7]
    assert "agree in part" in said[0.5]
    assert "agree little" in said[0.0] and "agree little" in said[-0.2]
    assert "do not agree at all" in said[-0.9] and "-0.90 over 9 events" in said[-0.9]
    assert "chance alone" in said[0.5] and "chance alone" not in said[1.0]
    assert "no attention" in verbs._verdict(None, None, 5)
    assert all("reasons" in said[value] for value in (0.0, -0.9))


# -- what cannot be explained --------------------------------------------------------------------------------------------------


def test_models_without_attention(data: Sequences) -> None:
    for model in (Pop(), Random(d=4), BPR(d=4)):
        with pytest.raises(ConfigError, match=f"{model.config.title} has no attention"):
            verbs.explain(model.fit(data, epochs=1), [data.item_ids[0]])


@pytest.mark.parametrize("counting", [False, True])
def test_sasrec_is_explained_by_what_leaving_out_does(counting: bool, data: Sequences) -> None:
    """Its last twenty events, or all that it reads; one that has moved out of reach has no effect."""
    model = SASRec(preset="paper", d=8, length=6, counting=counting, batch_size=16, warmup=5, learning_rate=0.01).fit(data, epochs=3)
    past = [data.item_ids[item] for item in (3, 7, 1, 9, 4, 2, 8, 5)]
    found = verbs.explain(model, past)
    assert found.a_x is None and found.a_h is None and found.agreement is None
    assert [event.item for event in found.events] == past[-6:] and not model.has_attention
    for place, event in enumerate(found.events):
        rest = past[: 2 + place] + past[3 + place :]
        score = verbs.explain(model, rest, found.recommended.item).recommended.score
        assert event.weight is None and event.effect == pytest.approx(found.recommended.score - score, abs=1e-5)
    assert model.recommend(past, 5) == model.recommend(past[-6:], 5)
    assert SASRec().explained_events == 20


def test_histories_and_items_that_are_not_there(models: dict[tuple[int, int], HCAGRU], data: Sequences) -> None:
    model = models[4, 3]
    for history in ([], ["nope"]):
        with pytest.raises(ConfigError, match="nothing to explain"):
            verbs.explain(model, history)
    with pytest.raises(DataError, match="id 'nope' is not among"):
        verbs.explain(model, ids(data, [1]), "nope")
    known, mixed = ids(data, [1, 2, 3]), ["nope", *ids(data, [1, 2]), "nor", *ids(data, [3])]
    assert verbs.explain(model, mixed)._replace(skipped=[]) == verbs.explain(model, known)
    assert verbs.explain(model, mixed).skipped == ["nope", "nor"]


# -- shown ---------------------------------------------------------------------------------------------------------------------


def test_shades_and_colours() -> None:
    assert [shade(share) for share in (0, 1e-9, 0.25, 0.5, 0.75, 1.0)] == [" ", "░", "░", "▒", "▓", "█"]
    assert [shade(share, blocks=False) for share in (0, 0.5, 1.0)] == [" ", ":", "#"]
    assert heat_row([0.5, None, 0.25], 0.5, 7) == [" █ 0.50", "       ", " ▒ 0.25"]
    assert heat_colour(0) == ("#ffffff", "#000000")
    assert heat_colour(1) == ("#0072b2", "#ffffff")


def contrast(one: str, two: str) -> float:
    """Return the contrast ratio of two colours as WCAG defines it."""
    lights = []
    for colour in (one, two):
        channels = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
        red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
        lights.append(0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05)
    return max(lights) / min(lights)


def test_numbers_can_be_read_on_every_shade() -> None:
    for share in np.linspace(0, 1, 101):
        assert contrast(*heat_colour(float(share))) >= 4


def shown(found: Any, width: int, encoding: str = "utf-8", **settings: Any) -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    render(found, Console(file=stream, width=width, **settings))
    stream.flush()
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("length", [1, 12])
def test_the_strip_fits_the_terminal(models: dict[tuple[int, int], HCAGRU], data: Sequences, windows: tuple[int, int], width: int, length: int) -> None:
    found = verbs.explain(models[windows], ids(data, (np.arange(length) * 7 % 50).tolist()))
    text = shown(found, width)
    assert max(map(len, text.splitlines())) <= width
    assert found.verdict in " ".join(text.split())
    lines = text.splitlines()
    rows = [line for line in lines if line.startswith(("a_h ", "a_x ")) and ":" not in line]
    assert len(rows) == (windows[1] > 1) + (windows[1] if windows[0] > 1 else 0)
    if width == 200 and found.a_h:
        assert [float(word) for word in rows[0].split() if word[0] == "0"] == [round(weight, 2) for weight in found.a_h]


def test_the_strip_lines_up_as_in_the_paper(models: dict[tuple[int, int], HCAGRU], data: Sequences) -> None:
    found = verbs.explain(models[4, 3], ids(data, list(range(10))))
    lines = shown(found, 100).splitlines()
    ends = {name: lines[1].index(name) + len(name) for name in ("n-5", "n-4", "n-3", "n-2", "n-1")} | {"n": len(lines[1].rstrip())}
    for step, row in zip(("n-2", "n-1", "n"), found.a_x, strict=True):
        line = next(line for line in lines if line.startswith(f"a_x {step} "))
        assert line[: ends[step]].rstrip().endswith(f"{row[-1]:.2f}")  # the newest input of a step stands under the step
        assert line[ends[step] :].strip() == ""


def test_plain_characters_and_plain_text(models: dict[tuple[int, int], HCAGRU], data: Sequences) -> None:
    found = verbs.explain(models[4, 3], ids(data, list(range(10))))
    assert "#" in shown(found, 100, "ascii")
    assert "\x1b" not in shown(found, 100)
    assert "\x1b[38;2;" in shown(found, 100, force_terminal=True, color_system="truecolor")


@pytest.mark.parametrize("windows", WINDOWS)
def test_a_figure_with_names_that_is_the_same_every_time(
    models: dict[tuple[int, int], HCAGRU], data: Sequences, windows: tuple[int, int], tmp_path: Path
) -> None:
    found = verbs.explain(models[windows], ids(data, [3, 1, 4]))
    one, two = (draw(found, tmp_path / name).read_bytes() for name in ("one.png", "two.png"))
    assert one == two
    assert one.startswith(b"\x89PNG")
    text = draw(found, tmp_path / "one.svg").read_text()
    for event in found.events:
        assert event.title[:25] in text
    for weights in [*(found.a_x or []), found.a_h or []]:
        assert all(f"<!-- {weight:.2f} -->" in text for weight in weights)


def test_strange_names_are_drawn_too(data: Sequences, tmp_path: Path) -> None:
    names = ["price $5 and $x_", "日本語の名前", "\x1b[31mred\n", "a" * 500, ""] * 10
    model = HCAGRU(preset="paper", d=4, window_x=3, window_h=3).fit(replace(data, titles=Ids.of(names), about={}), epochs=1)
    found = verbs.explain(model, ids(data, [0, 1, 2, 3, 4, 5]))
    assert draw(found, tmp_path / "strange.png").stat().st_size > 0
    text = shown(found, 90)
    assert max(map(len, text.splitlines())) <= 90
    assert "\x1b" not in text


# -- the command -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(models: dict[tuple[int, int], HCAGRU], tmp_path: Path) -> Path:
    models[4, 3].save(tmp_path / "model")
    return tmp_path / "model"


def test_json_is_that_of_the_contract(folder: Path, models: dict[tuple[int, int], HCAGRU], data: Sequences, command: Command, tmp_path: Path) -> None:
    history = ids(data, [3, 1, 4, 1, 5])
    code, out, err = command("explain", folder, "--history", ",".join(map(str, history)), "--json", "-")
    assert (code, err) == (0, "")
    found = json.loads(out)
    expected = verbs.explain(models[4, 3], history)
    assert (found["a_x"], found["a_h"], found["agreement"]) == (expected.a_x, expected.a_h, expected.agreement)
    assert [event["effect"] for event in found["events"]] == [event.effect for event in expected.events]
    data.save(tmp_path / "data")
    code, out, err = command("explain", folder, "--user", data.user_ids[2], "--data", tmp_path / "data", "--json", "-")
    assert (code, err) == (0, "")
    assert json.loads(out)["a_x"] == verbs.explain(models[4, 3], ids(data, data[2].tolist())).a_x
    models[1, 1].save(tmp_path / "gru")
    found = json.loads(command("explain", tmp_path / "gru", "--history", str(history[0]), "--json", "-")[1])
    assert (found["a_x"], found["a_h"]) == (None, None)
    assert len(found["events"]) == 1


def test_the_command_shows_and_draws(folder: Path, data: Sequences, command: Command, tmp_path: Path) -> None:
    history = ",".join(map(str, ids(data, [3, 1, 4, 1, 5, 9])))
    code, out, err = command("explain", folder, "--history", f"nope,{history}", "--item", str(data.item_ids[7]), "--plot", tmp_path / "strip.png")
    assert code == 0
    assert err == "hcarec: skipped, not in the model's catalogue: nope\n"
    assert data.title(7) in out and "rank correlation" in out and "strip.png" in out
    assert (tmp_path / "strip.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "neither of --history and --user"),
        (("--history", "1", "--user", "1"), "both of --history and --user"),
        (("--user", "1"), "does not note where its data is"),
        (("--history", "i01", "--item", "nope"), "id 'nope' is not among"),
        (("--history", "i01", "--plot", "strip.txt"), "ends in .png"),
        (("--history", ""), "nothing to explain"),
    ],
)
def test_mistakes_are_one_line(folder: Path, command: Command, arguments: tuple[str, ...], message: str) -> None:
    code, out, err = command("explain", folder, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
