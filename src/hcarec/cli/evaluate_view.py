"""Show the metrics of a model, with the rules they were made under."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from hcarec.evaluation import Result

_BY_K = {
    "recall": "Recall, pooled",
    "map": "MAP",
    "ndcg": "NDCG",
    "user_recall": "Recall, mean of users",
    "mrr": "MRR",
    "hit": "Hit rate",
    "coverage": "Coverage of the catalogue",
}


def show(result: Result, console: Console) -> None:
    """Print metrics in percent, then the protocol in words."""
    table = Table(title=result.model, title_justify="left", title_style="bold", box=None, padding=(0, 3, 0, 0))
    table.add_column("%")
    ks = result.protocol["metrics"]["k"]
    for k in ks:
        table.add_column(f"@{k}", justify="right")
    for name, words in _BY_K.items():
        table.add_row(words, *(f"{100 * result.metrics[f'{name}@{k}']:.3f}" for k in ks))
    console.print(table)
    console.print(f"AUC {100 * result.metrics['auc']:.3f} against one sampled item each, {100 * result.metrics['auc_exact']:.3f} against all")
    rules = result.protocol
    counts = rules["split"]["counts"]
    console.print(f"{len(result.user_ids):,} users evaluated of {counts['users']:,}; {counts['test_items']:,} test items; seen items {rules['seen']}")
    console.print(f"split {rules['split']['split']}: {rules['split']['rule']}; epoch by {rules['selection']}")
    from hcarec.protocol import fingerprint

    console.print(f"protocol {fingerprint(rules)[:12]}, data {rules['data']['fingerprint'][:12]}")
