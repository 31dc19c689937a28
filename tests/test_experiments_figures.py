"""The figures of the experiments: drawn from whatever there is, the same every time."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest

from hcarec.experiments import figures
from hcarec.experiments.looks import look

METHODS = ["GRU", *(f"HCA-GRU-{family}{width}" for family in "xh" for width in (2, 3, 4, 5)), "HCA-GRU-x5-h5"]
VALUES = {
    "schema": {"data": pl.String, "method": pl.String, "seed": pl.Int64, "selection": pl.String, "metric": pl.String, "k": pl.Int32, "value": pl.Float64},
    "orient": "row",
}


def runs(data: str = "a $b_c$", methods: list[str] = METHODS, seeds: int = 2, ks: tuple[int, ...] = (5, 10), value: float | None = None) -> pl.DataFrame:
    rows = [
        (data, method, seed, "validation", metric, k, value if value is not None else 0.01 * (1 + number) * (1 + seed) * (k or 1))
        for number, method in enumerate(methods)
        for seed in range(seeds)
        for metric in ("recall", "map", "ndcg", "auc")
        for k in (ks if metric != "auc" else (None,))
    ]
    return pl.DataFrame(rows, **VALUES)  # type: ignore[arg-type]


def curves(epochs: int = 3, methods: list[str] = ["BPR", "GRU", "HCA-GRU-h5"]) -> pl.DataFrame:  # noqa: B006
    rows = [("a", m, seed, "validation", e, 9.0 / e, None if e == 2 else 0.1 * e, 10) for m in methods for seed in (0, 1) for e in range(1, epochs + 1)]
    names = ["data", "method", "seed", "selection", "epoch", "loss", "ndcg", "steps"]
    return pl.DataFrame(
        rows, schema=dict(zip(names, (pl.String, pl.String, pl.Int64, pl.String, pl.Int64, pl.Float64, pl.Float64, pl.Int64), strict=True)), orient="row"
    )


MONOTONY = pl.DataFrame(
    {"data": ["a", "b"], "method": ["m", "m"], "level": ["input", "hidden"], "width": [2, 5], "rising": [0.4, float("nan")], "falling": [0.6, 0.1]}
)
SCARCE = [runs(), runs(seeds=1), runs(methods=["GRU"]), runs(methods=["HCA-GRU-x7"]), runs(value=float("nan")), runs(value=0.0), runs(seeds=0), runs(ks=(20,))]


@pytest.mark.parametrize("frame", SCARCE, ids=range(len(SCARCE)))
def test_figures_are_drawn_from_whatever_there_is(frame: pl.DataFrame, tmp_path: Path) -> None:
    for path in (figures.widths({"a": frame}, tmp_path / "w.svg"), figures.gains(frame, tmp_path / "g.svg")):
        assert path.read_bytes().startswith(b"<?xml")


def test_no_data_set_and_no_run_are_drawn_too(tmp_path: Path) -> None:
    for path in (figures.widths({}, tmp_path / "w.png"), figures.losses(curves(0), tmp_path / "l.png"), figures.monotony(MONOTONY.clear(), tmp_path / "m.png")):
        assert path.read_bytes().startswith(b"\x89PNG")


def test_the_same_runs_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        target = tmp_path / name
        figures.widths({"a": runs()}, target / "w.svg")
        figures.gains(runs(), target / "g.png")
        figures.losses(curves(), target / "l.svg")
        figures.attention([[0.5, 0.5], [0.25, 0.75]], [0.4, 0.6], ["$x$", "<y>"], target / "a.svg", "title")
        figures.monotony(MONOTONY, target / "m.svg")
    made = sorted((tmp_path / "one").iterdir())
    assert len(made) == 5
    for path in made:
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name


def texts(path: Path) -> str:
    """Return what an SVG file says: matplotlib notes each text as a comment beside its outline."""
    return "\n".join(re.findall(r"<!-- (.*?) -->", path.read_text()))


def test_figures_say_what_they_show(tmp_path: Path) -> None:
    widths = texts(figures.widths({"a $b_c$": runs(), "b": runs("b")}, tmp_path / "w.svg"))
    assert widths.count("NDCG") == 2 and "a $b_c$, %" in widths and all(name in widths for name in ("GRU", "x2", "x5", "h2", "h5", "@10"))
    gains = texts(figures.gains(runs(), tmp_path / "g.svg"))
    assert all(name in gains for name in ("NDCG@10", "MAP@10", "Recall@5", "Recall@10"))
    assert "x5, h5, x5-h5" in gains  # the best of each family, whose values grow with the width here
    losses = texts(figures.losses(curves(), tmp_path / "l.svg", k=10))
    assert "NDCG@10, %" in losses and losses.index("GRU") < losses.index("HCA-GRU-h5")
    attention = texts(figures.attention(None, [0.4, 0.6], ["one"], tmp_path / "a.svg"))
    assert "(before the start)" in attention and "0.60" in attention
    assert "2 inputs" in texts(figures.monotony(MONOTONY, tmp_path / "m.svg"))


def test_two_selections_are_never_drawn_as_one(tmp_path: Path) -> None:
    mixed = pl.concat([runs(), runs().with_columns(selection=pl.lit("best-epoch-on-test"))])
    with pytest.raises(AssertionError, match="two selections"):
        figures.gains(mixed, tmp_path / "g.svg")


def test_methods_differ_by_more_than_colour() -> None:
    looks = [look(method) for method in [*METHODS, "BPR", "POP", "Random"]]
    assert len({(one.marker, str(one.line), one.filled) for one in looks}) == len(looks)
