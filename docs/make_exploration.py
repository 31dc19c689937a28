"""Write docs/results/exploration.md from the records beside it, so that no figure in it is typed by hand.

python docs/make_exploration.py
"""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

from benchmarks_gpu import table

RESULTS = Path(__file__).parent / "results"
TARGET = RESULTS / "exploration.md"
HEAD = """# Exploration before the recipe

One seed each, leave-one-out, full ranking, epoch chosen on validation, which is what every figure here is made on; nothing in this table is a result.
`exploration.jsonl.xz` beside this page has all settings of each run. F hides the items of the history, U does not.
*Fused* adds the [counting term](../network.md#options-beyond-the-paper), its scale s and floor e chosen on at most 10,000 validation users,
which it is measured on as well: on amazon_beauty, tmall, retailrocket and nowplaying the two figures of a run are of different users.
A run is named by what it tries; the second round has the better parts of the first. The third and the fourth change the preset as it then was (*preset*),
by `benchmarks/recipe_trials.py` and, a few, by hand. In the fourth, HCA-GRU, GRU and SASRec have the same trials, six on each of three logs
(on movielens-1m one more, *3 blocks, rate 2e-3*): trained for a few epochs, then the best third to the end,
and where one model's *3 blocks* went on, so did those of the others. The fifth looks for settings of three logs that no trial
had been made on (16 epochs at most); on two of them nothing was better than the preset. The sixth is of what a CPU of two cores trains on a large catalog,
against sampled items (12 epochs). Runs that were ended by the clock show what they had reached.
"""


def page() -> str:
    """Return the whole page."""
    records = [json.loads(line) for line in lzma.decompress((RESULTS / "exploration.jsonl.xz").read_bytes()).splitlines()]
    last = {(record["log"], record["model"], record["rule"], record["round"], record["name"]): record for record in records}
    records = list(last.values())  # of a trial that went on, its end
    logs = dict.fromkeys(record["log"] for record in records)
    return HEAD + "".join(_section(log, [record for record in records if record["log"] == log]) for log in logs)


def _section(log: str, records: list[dict[str, Any]]) -> str:
    rows = []
    for record in sorted(records, key=lambda record: (record["round"], record["rule"])):
        fused, alone = record["fused"][record["rule"]], record["validation"][record["rule"]]
        figures = f"{alone['ndcg@10']:.4f}", f"{fused['ndcg@10']:.4f}", f"{fused['scale']:g}, {fused['floor']:g}"
        rows.append((record["name"], record["model"], record["rule"], str(record["round"]), str(record["epoch"]), *figures))
    heads = ("run", "model", "rule", "round", "epoch", "NDCG@10", "fused", "s, e")
    return "\n".join(["", f"## {log}", "", *table(heads, rows), ""])


if __name__ == "__main__":
    TARGET.write_text(page())
