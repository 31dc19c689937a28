"""Published figures stand beside ours on the same log."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments.trials.trial_cases import Done, copy_records, of_method, study
from hcarec.experiments.data_sets import noted_statistics
from hcarec.experiments.trials import contest
from hcarec.experiments.trials import peers as module
from hcarec.experiments.trials.peers import peers
from hcarec.experiments.trials.report import write_trials
from hcarec.experiments.trials.study import trial_results


def test_published_figures_stand_beside_the_very_same_log_alone() -> None:
    beauty = {"users": 22_363, "items": 12_101, "events": 198_502}
    known = peers(beauty)
    assert known is not None and max(one.ndcg for one in known.figures if one.rule == "U") == 0.0438
    assert peers({**beauty, "items": 12_100}) is None
    movies = peers({"users": 6_040, "items": 3_416, "events": 999_611})
    assert movies is not None and {one.rule for one in movies.figures} == {"F"}
    assert movies.figures[0].ndcg == 0.1904


def test_the_report_sets_our_networks_beside_published_figures(
    done: Done, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logs: dict[str, Path]
) -> None:
    copy_records(done, tmp_path)
    results = trial_results(tmp_path)
    counts = {name: noted_statistics(results)["once"][name] for name in ("items", "users")}
    monkeypatch.setattr(module, "LOGS", (module.LOGS[1]._replace(counts=counts),))
    write_trials(study("contest", {"once": logs["once"]}, tmp_path))
    text = (tmp_path / "contest.md").read_text()
    section = text.partition("## Beside published figures")[2].partition("## ")[0]
    lines = [line for line in section.splitlines() if line.startswith(("| F", "| U"))]
    rows = [[cell.strip(" *") for cell in line.split("|")[1:-1]] for line in lines]
    ours = {(rule, name): ndcg for rule, name, ndcg, _, source, *_ in rows if "here" in source}
    assert {name for rule, name in ours if rule == "U"} == {"GRU", "HCA-GRU"}
    networks = {"GRU", "HCA-GRU", "SASRec", contest.DEFAULT}
    assert {name for rule, name in ours if rule == "F"} == networks
    # As others', ours are of networks that have not learned the validation events.
    records = of_method(results, "once", "SASRec", "F")
    value = np.mean([record["without_validation"]["ndcg@10"] for record in records])
    assert value != np.mean([record["figures"]["F"]["ndcg@10"] for record in records])
    assert ours["F", "SASRec"] == f"{value:.4f}"
    assert any("WEARec" in row[1] for row in rows)
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)
