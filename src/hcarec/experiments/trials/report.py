"""Write the report of contest or ablation."""

from __future__ import annotations

from pathlib import Path

from hcarec.experiments.trials.ablation_report import write_ablation
from hcarec.experiments.trials.contest_report import write_contest
from hcarec.experiments.trials.study import TrialStudy

WRITERS = {"contest": write_contest, "ablation": write_ablation}


def write_trials(study: TrialStudy) -> list[Path]:
    """Write the pages and figures beside the folder of records; return what was written."""
    return WRITERS[study.name](study, study.results.folder.parent)
