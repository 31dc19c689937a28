"""Which networks each experiment compares, and the rule by which widths are chosen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from hcarec.experiments.run import DataSet, Run
from hcarec.experiments.settings import Settings
from hcarec.models import MODELS, Config

if TYPE_CHECKING:
    import polars as pl


class Widths(NamedTuple):
    """Chosen widths: of the input alone, of the hidden state alone, and of both; `measured` says whether runs chose them."""

    x: int
    h: int
    both: tuple[int, int]
    measured: bool


def baselines(settings: Settings) -> list[Config]:
    """Return Random, POP, BPR and GRU."""
    return [settings.config(model) for model in ("random", "pop", "bpr", "gru")]


def single_levels(settings: Settings) -> list[Config]:
    """Return the networks of Figure 2: every width of either level alone."""
    return [settings.config("hca-gru", window_x=w) for w in settings.widths] + [settings.config("hca-gru", window_h=w) for w in settings.widths]


def complete_networks(settings: Settings, x: int, h: int) -> list[Config]:
    """Return the networks of Table 4: one width fixed at its best, the other varied."""
    pairs = dict.fromkeys([(x, w) for w in settings.widths] + [(w, h) for w in settings.widths])
    return [settings.config("hca-gru", *pair) for pair in pairs]


def methods(settings: Settings, widths: Widths) -> list[Config]:
    """Return the seven methods of Table 2."""
    return [
        *baselines(settings),
        settings.config("hca-gru", window_x=widths.x),
        settings.config("hca-gru", window_h=widths.h),
        settings.config("hca-gru", *widths.both),
    ]


def runs_of(data: Sequence[DataSet], configs: Iterable[Config], settings: Settings, selection: str) -> list[Run]:
    """Return every seed of every network on every data set, seed by seed, so that an early end leaves whole seeds; POP needs one."""
    listed = list(configs)
    return [
        Run(one, config, seed if MODELS[config.model].seeded else 0, selection, settings.ks)
        for seed in settings.seeds
        for one in data
        for config in listed
        if MODELS[config.model].seeded or seed == settings.first_seed
    ]


def best(frame: pl.DataFrame, methods: Sequence[str]) -> str | None:
    """Choose a network by the paper's rule, MAP and NDCG: the one whose means over runs come closest to the best of each, over all k.

    frame: the tidy figures of one data set and selection; where some networks have more seeds than others, those that all have are compared.
    Ties go to the narrower network, which comes first.
    """
    import polars as pl

    wanted = frame.filter(pl.col("method").is_in(methods) & pl.col("metric").is_in(["map", "ndcg"]))
    if wanted.is_empty():
        return None
    shared = wanted.group_by("seed").agg(pl.col("method").n_unique()).filter(pl.col("method") == wanted["method"].n_unique())
    if not shared.is_empty():
        wanted = wanted.filter(pl.col("seed").is_in(shared["seed"].implode()))
    means = wanted.group_by("method", "metric", "k").agg(pl.col("value").mean())
    relative = means.with_columns(share=pl.col("value") / pl.col("value").max().over("metric", "k")).group_by("method").agg(pl.col("share").mean())
    share = dict(relative.select("method", "share").iter_rows())
    return max((name for name in methods if name in share), key=lambda name: round(share[name], 12))
