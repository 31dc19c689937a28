"""Make metrics_trec_eval.json: rankings and their metrics as trec_eval computes them.

Run with pytrec-eval-terrier 0.5.11 installed (`pip install pytrec-eval-terrier numpy`); nothing of hcarec is imported.
trec_eval's map_cut_k divides by the number of relevant documents and its ndcg_cut_k has its ideal over the first k,
as ours do; recall_k is per user; success_k is the hit rate; recip_rank is taken of the list cut at k.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytrec_eval

KS = (5, 10, 15, 20)
N_ITEMS, N_USERS = 60, 40


def main() -> None:
    chance = random.Random(20)
    top = [chance.sample(range(N_ITEMS), 20) for _ in range(N_USERS)]
    test = [chance.sample(range(N_ITEMS), chance.randint(1, 30)) for _ in range(N_USERS)]
    relevant = {str(u): {str(item): 1 for item in items} for u, items in enumerate(test)}
    users: dict[str, list[float]] = {}
    for k in KS:
        # Scores fall with the rank, so that the order of the list is the order trec_eval sees.
        run = {str(u): {str(item): float(100 - at) for at, item in enumerate(items[:k])} for u, items in enumerate(top)}
        names = {f"map_cut.{k}", f"ndcg_cut.{k}", f"recall.{k}", f"success.{k}", "recip_rank"}
        found = pytrec_eval.RelevanceEvaluator(relevant, names).evaluate(run)
        ours = {"ap": "map_cut", "ndcg": "ndcg_cut", "recall": "recall", "hit": "success"}
        for our, theirs in ours.items():
            users[f"{our}@{k}"] = [found[str(u)][f"{theirs}_{k}"] for u in range(N_USERS)]
        users[f"rr@{k}"] = [found[str(u)]["recip_rank"] for u in range(N_USERS)]
    result = {"n_items": N_ITEMS, "top": top, "test": test, "users": users}
    (Path(__file__).parent / "metrics_trec_eval.json").write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
