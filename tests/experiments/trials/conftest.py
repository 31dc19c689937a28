"""Two small logs and a whole contest on them, made once; no test changes them."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import hcarec
from experiments.trials.trial_cases import TINY, Done
from hcarec import experiments, synthetic


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return two small logs: users repeat items in "back", and never in "once"."""
    folder = tmp_path_factory.mktemp("logs")
    for name, seed, repeats in (("back", 5, "keep"), ("once", 6, "once")):
        data = synthetic(users=40, items=30, mean_length=12, seed=seed)
        rows = [
            (f"u{user}", f"i{item}", step)
            for user in range(data.n_users)
            for step, item in enumerate(data[user].tolist())
        ]
        frame = pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp"], orient="row")
        hcarec.prepare(frame, folder / name, min_user_events=3, repeats=repeats)
    return {name: folder / name for name in ("back", "once")}


@pytest.fixture(scope="session")
def done(logs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Done:
    """Run the whole contest on both logs."""
    out = tmp_path_factory.mktemp("contest")
    return out, experiments.contest(logs, out, workers=1, **TINY)
