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
and where one model's *3 blocks* went on, so did those of the others. Beside these it has five of HCA-GRU of 10 epochs on amazon_beauty
and two or three of it on each of the other logs. The fifth looks for settings on nowplaying, retailrocket and tmall
(16 epochs at most); on two of them nothing was better than the preset. The sixth is of what a CPU of two cores trains on a large catalog,
against sampled items (12 epochs). By rounds 3 to 6 nowplaying, retailrocket and tmall have been tuned on as well.
Runs that were ended by the clock show what they had reached.

How many runs there are; one that is listed in two rounds counts once, and one of hca-gru whose levels are both off counts as gru:
"""
CHOICES = """
## What each choice rests on

The choices of [the preset `modern`](../training.md#the-preset-modern), and the runs to compare for each.

| choice | runs to compare |
|---|---|
| blocks and cosine scores where nothing repeats | movielens-1m: *base*, *2 blocks hid.3* |
| the bare cell and dot products elsewhere | foursquare_sg: *item norm*, *block*; online_retail: *base*, *block*; tafeng: *base*, *block* |
| dropout inside blocks | amazon_beauty: *base*, *hidden dropout*, *hid.4 wd.1* |
| counting, fused late | the column *fused* beside the one before it, on movielens-1m, foursquare_sg, online_retail and tafeng, \
where both are of the same users |
| `length` 100 where items repeat | online_retail: *block*, *length 200 block* |
| random positions for prefixes on a CPU | amazon_beauty: *base*, *positions* |
| random positions where items repeat | online_retail and tafeng: *preset* of round 3, *8 positions* |
| larger batches of them, at twice the rate | online_retail: *8 positions*, *preset* of round 4: as good, and quicker |
| larger batches of large logs | tmall: *preset* of round 3, *batches of 1,024* |
| three blocks where histories are long | movielens-1m: *3 blocks* of gru and sasrec beside their other trials |
| d 128 where items are rare, 256 elsewhere | foursquare_sg and amazon_beauty: *preset*, *d 128*; tmall: *preset* of round 4, *d 128*; \
online_retail: *preset* of round 4, *d 128* |
| sampled softmax where a CPU cannot score the catalog | nowplaying: *two cores, d 96, sampled softmax*; \
the whole catalog leaves no time for 12 epochs of d 64 |
| less dropout with it | nowplaying: *two cores: preset* of round 6, *dropout .2*, *dropout .1*, *no dropout*: \
in the epochs that a CPU has time for, too much of it learns too little |
| 8,192 negatives | nowplaying: *dropout .2*, *dropout .2, 4,096 negatives* and *8,192 negatives* of round 6: worth their time |
"""


def page() -> str:
    """Return the whole page."""
    records = [json.loads(line) for line in lzma.decompress((RESULTS / "exploration.jsonl.xz").read_bytes()).splitlines()]
    last = {(record["log"], record["model"], record["rule"], record["round"], record["name"]): record for record in records}
    records = list(last.values())  # of a trial that went on, its end
    logs = dict.fromkeys(record["log"] for record in records)
    return HEAD + _counts(records) + CHOICES + "".join(_section(log, [record for record in records if record["log"] == log]) for log in logs)


def _counts(records: list[dict[str, Any]]) -> str:
    """Return a table of the runs by log and model, with the rounds that a log is in."""
    runs = {(*(record[name] for name in ("log", "model", "rule", "epoch")), record["validation"][record["rule"]]["ndcg@10"]): record for record in records}
    models, logs = ("hca-gru", "gru", "sasrec"), dict.fromkeys(record["log"] for record in records)
    rows = []
    for log in (*logs, None):
        mine = [record for record in runs.values() if log in (record["log"], None)]
        rounds = sorted({record["round"] for record in records if log in (record["log"], None)})
        each = (sum(_network(record) == model for record in mine) for model in models)
        rows.append((log or "all", ", ".join(map(str, rounds)), *map(str, each), str(len(mine))))
    return "\n" + "\n".join(table(("log", "rounds", *models, "all"), rows)) + "\n"


def _network(record: dict[str, Any]) -> str:
    """Return the model of a run; hca-gru without either level is gru."""
    windows = {record["settings"].get(name) for name in ("window_x", "window_h")}
    return "gru" if windows == {1} else record["model"]


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
