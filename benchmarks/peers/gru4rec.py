"""Train RecBole's GRU4Rec, a part of an epoch for every line of standard input; print what each took as JSON.

Run by `benchmarks/train_minibatch.py` in an environment of its own. The training loop is RecBole's own; only the number
of batches that it gets is bounded, drawn anew from all samples every time.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from recbole.config import Config
from recbole.data import create_dataset, data_preparation
from recbole.trainer import Trainer
from recbole.utils import get_model, init_seed


class Some:
    """The first batches of a loader that shuffles; counts the targets in them."""

    def __init__(self, loader: Any, n: int) -> None:
        self.loader, self.n, self.targets = loader, n, 0

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[Any]:
        self.targets = 0
        for batch in itertools.islice(iter(self.loader), self.n):
            self.targets += len(batch)
            yield batch


def settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return RecBole's defaults but for what all contenders share: d, length, loss."""
    return {
        "data_path": str(options.data.parent), "checkpoint_dir": str(options.data / "checkpoints"), "state": "ERROR",
        "USER_ID_FIELD": "user_id", "ITEM_ID_FIELD": "item_id", "TIME_FIELD": "timestamp",
        "load_col": {"inter": ["user_id", "item_id", "timestamp"]},
        "embedding_size": options.d, "hidden_size": options.d, "num_layers": 1, "loss_type": "CE",
        "train_neg_sample_args": None, "MAX_ITEM_LIST_LENGTH": options.length, "train_batch_size": options.batch_size,
        "use_gpu": False, "show_progress": False,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder NAME with NAME.inter in it")
    parser.add_argument("--d", type=int, required=True)
    parser.add_argument("--length", type=int, required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--batches", type=int, required=True, help="batches a line")
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args()
    arguments, sys.argv = sys.argv, sys.argv[:1]  # RecBole reads the command line as well
    config = Config(model="GRU4Rec", dataset=options.data.name, config_dict=settings(options))
    sys.argv = arguments
    init_seed(config["seed"], config["reproducibility"])
    torch.set_num_threads(options.threads)
    train, _, _ = data_preparation(config, create_dataset(config))
    model = get_model("GRU4Rec")(config, train.dataset).to(config["device"])
    trainer, some = Trainer(config, model), Some(train, options.batches)
    print(json.dumps({"samples": len(train.dataset), "items": train.dataset.item_num - 1, "batches_of_an_epoch": len(train)}), flush=True)
    for number, _ in enumerate(sys.stdin):
        began = time.perf_counter()
        loss = trainer._train_epoch(some, number)
        print(json.dumps({"targets": some.targets, "seconds": time.perf_counter() - began, "loss": loss / len(some)}), flush=True)


if __name__ == "__main__":
    main()
