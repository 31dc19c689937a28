"""The ablation: HCA-GRU without one ingredient at a time, and curves over its sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hcarec.experiments.run import DataSet
from hcarec.experiments.trials.rules import deciding_rule
from hcarec.experiments.trials.settings import TrialSettings
from hcarec.experiments.trials.trial import Trial
from hcarec.models import MODELS, Config, make
from hcarec.settings import PAPER

MODEL, WHOLE = "hca-gru", "HCA-GRU"


class Ingredient(NamedTuple):
    """Something that can be taken out: its name, and the settings without it.

    None is the default of the setting, which is that of the paper's network: off.
    """

    name: str
    without: Mapping[str, Any]


INGREDIENTS = (
    Ingredient("x-level", {"window_x": 1}),
    Ingredient("h-level", {"window_h": 1}),
    Ingredient("block", {"blocks": 0, "output_norm": True}),
    Ingredient("cosine scores", {"scores": "dot"}),
    Ingredient("averaged weights", {"ema": 0.0}),
    Ingredient("LayerNorm on items", {"item_norm": False}),
    Ingredient("copy term", {"copy_window": 0}),
    Ingredient("counting term", {"counting": None}),
    Ingredient("prefixes or positions as samples", {"batches": "sequences"}),
    Ingredient("residual fusion", {"fusion": "paper"}),
    Ingredient("masked padding, scaled start", {"padding": "zero", "initial": "paper"}),
)


class Curve(NamedTuple):
    """A size of the network that is varied with one seed: its settings and their values."""

    name: str
    settings: tuple[str, ...]
    values: tuple[int, ...]


CURVES = (
    Curve("d", ("d",), (64, 128, 256, 384)),
    Curve("length", ("length",), (25, 50, 100, 200)),
    Curve("windows", ("window_x", "window_h"), (2, 5, 10, 20)),
)


def without(ingredient: Ingredient) -> str:
    """Return the name of the network without an ingredient."""
    return f"{WHOLE} without {ingredient.name}"


def sized(curve: Curve, value: int) -> str:
    """Return the name of the network with another size."""
    return f"{WHOLE}, {curve.name} {value}"


def changed(
    ingredient: Ingredient, log: Mapping[str, Any], settings: TrialSettings
) -> Config | None:
    """Return the configuration without an ingredient, None where a log's settings have it not."""
    if not set(ingredient.without) <= MODELS[MODEL].setting_names():
        return None
    plain = make(MODEL, preset=PAPER).config.as_dict()
    values = {n: plain[n] if v is None else v for n, v in ingredient.without.items()}
    config = settings.modern(MODEL, log, **values)
    return config if config != settings.modern(MODEL, log) else None


def left_out(log: Mapping[str, Any], settings: TrialSettings) -> list[str]:
    """Return the ingredients that the settings of a log do not have."""
    return [
        ingredient.name for ingredient in INGREDIENTS if changed(ingredient, log, settings) is None
    ]


def sizes(
    curve: Curve, log: Mapping[str, Any], settings: TrialSettings
) -> dict[int, tuple[str, Config]]:
    """Return the name and the configuration of the network at each value of a curve.

    The value that the log's settings have is among them, under the name of the whole network.
    """
    whole = settings.modern(MODEL, log)
    usual = whole.as_dict()[curve.settings[0]]
    networks = {
        value: (
            sized(curve, value),
            settings.modern(MODEL, log, **dict.fromkeys(curve.settings, value)),
        )
        for value in sorted({*curve.values, usual})
    }
    return {
        value: (WHOLE, config) if config == whole else (name, config)
        for value, (name, config) in networks.items()
    }


def trials(
    data: Sequence[DataSet], logs: Mapping[str, Mapping[str, Any]], settings: TrialSettings
) -> list[Trial]:
    """Return all trials: the whole network and those without an ingredient seed by seed, curves."""
    made = []
    for seed in settings.seeds:
        for data_set in data:
            log = logs[data_set.name]
            networks = {WHOLE: settings.modern(MODEL, log)}
            for ingredient in INGREDIENTS:
                if (config := changed(ingredient, log, settings)) is not None:
                    networks[without(ingredient)] = config
            if seed == settings.first_seed:
                networks |= {
                    name: config
                    for curve in CURVES
                    for name, config in sizes(curve, log, settings).values()
                }
            rule = deciding_rule(log)
            made += [
                Trial(data_set, name, config, seed, rule, settings.device)
                for name, config in networks.items()
            ]
    return made
