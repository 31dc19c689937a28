"""Two methods are tested user by user, and tests on several logs are corrected."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.trials.trial_cases import Done, of_method
from hcarec.comparison import bootstrap, sign_flip
from hcarec.experiments.trials.paired import correct, gain, paired_test
from hcarec.experiments.trials.study import trial_results
from hcarec.experiments.trials.trial import ranks_file


def test_tests_are_paired_by_user_on_the_mean_over_seeds(done: Done) -> None:
    results = trial_results(done[0])
    mine, others = (of_method(results, "back", method, "U") for method in ("HCA-GRU", "Markov"))
    found = paired_test(results, mine, others, "U")
    assert found is not None and len(mine) == 2 and len(others) == 1
    gains = [
        np.mean([gain(np.load(ranks_file(results, r["key"]))["U"]) for r in part], axis=0)
        for part in (mine, others)
    ]
    d = (gains[0] - gains[1])[:, None]
    low, high = bootstrap(d, np.ones_like(d))
    assert found["difference"] == pytest.approx(d.mean())
    assert (found["low"], found["high"]) == pytest.approx((low[0], high[0]))
    assert found["p"] == pytest.approx(sign_flip(d)[0]) and found["users"] == len(d)
    assert paired_test(results, mine, [], "U") is None


def test_holm_corrects_over_the_logs() -> None:
    given = (("a", 0.01, 1.0), ("b", 0.03, -1.0), ("c", 0.04, 1.0))
    found = correct({log: {"p": p, "difference": d} for log, p, d in given})
    assert [test["p_holm"] for test in found.values()] == pytest.approx([0.03, 0.06, 0.06])
    assert [test["verdict"] for test in found.values()] == ["higher", "none shown", "none shown"]
    assert correct({"a": {"p": 0.01, "difference": -1.0}})["a"]["verdict"] == "lower"
