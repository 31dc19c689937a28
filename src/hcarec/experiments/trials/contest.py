"""The contest: which methods meet on every log, and under which rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hcarec.experiments.run import DataSet
from hcarec.experiments.trials.choosing import candidates
from hcarec.experiments.trials.rules import F, U, deciding_rule
from hcarec.experiments.trials.settings import TrialSettings
from hcarec.experiments.trials.trial import Trial
from hcarec.models import MODELS, Config

MAIN = "HCA-GRU"
"""The method that is tested against others."""
AGAINST = ("Markov", "ItemKNN", "SASRec", "GRU")
"""Those that it is tested against."""
BOTH_WAYS = ("GRU", "HCA-GRU")
"""Methods that, where F decides, are trained and selected under U as well."""
PAPER_EPOCHS = 30
"""The most epochs of the paper's trainer."""
DEFAULT = "HCA-GRU, two cores"
"""What `hcarec train` gives without options on a small machine."""


class Method(NamedTuple):
    """A method of the contest: its name in tables, its model, and whether mini-batches train it.

    With `cores` it is sized for a CPU of so many, and has one seed.
    """

    name: str
    model: str
    modern: bool = False
    cores: int | None = None


METHODS = (
    Method("POP", "pop"),
    Method("Markov", "markov"),
    Method("ItemKNN", "item-knn"),
    Method("BPR", "bpr"),
    Method("GRU, paper", "gru"),
    Method("HCA-GRU, paper", "hca-gru"),
    Method("SASRec", "sasrec", modern=True),
    Method("GRU", "gru", modern=True),
    Method("HCA-GRU", "hca-gru", modern=True),
    Method(DEFAULT, "hca-gru", modern=True, cores=2),
)


def names() -> list[str]:
    """Return the names of the methods, in the order of tables."""
    return [method.name for method in METHODS]


def trials(
    data: Sequence[DataSet], logs: Mapping[str, Mapping[str, Any]], settings: TrialSettings
) -> list[Trial]:
    """Return all trials, seed by seed, so that an early end leaves whole seeds.

    `logs` are the statistics of each data set by its name.
    """
    made = []
    for seed in settings.seeds:
        for data_set in data:
            rule = deciding_rule(logs[data_set.name])
            for method in METHODS:
                seeded = MODELS[method.model].seeded
                if (not seeded or method.cores) and seed != settings.first_seed:
                    continue
                config = _config(method, logs[data_set.name], settings)
                rules = (F, U) if rule == F and method.name in BOTH_WAYS else (rule,)
                made += [
                    Trial(
                        data_set, method.name, config, seed if seeded else 0, each,
                        "cpu" if method.cores else settings.device,
                        candidates=candidates(method.model), cores=method.cores,
                        changes=settings.given(method.model) if method.cores else {},
                    )
                    for each in rules
                ]  # fmt: skip
    return made


def _config(method: Method, log: Mapping[str, Any], settings: TrialSettings) -> Config:
    if method.modern:
        return settings.modern(method.model, log)
    if not MODELS[method.model].trainers:
        return settings.config(method.model)
    return settings.config(method.model, preset="paper", epochs=PAPER_EPOCHS)
