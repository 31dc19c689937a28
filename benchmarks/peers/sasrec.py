"""Train RecTools' SASRec, a part of an epoch for every line of standard input; print what each took as JSON.

Run by `benchmarks/train_minibatch.py` in an environment of its own. The training loop is RecTools' own, with Lightning;
only the number of batches of an epoch is bounded, drawn anew from all users every time.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pandas
import torch
from pytorch_lightning import Callback, Trainer
from rectools import Columns
from rectools.dataset import Dataset
from rectools.models import SASRecModel


class Rounds(Callback):
    """Begins an epoch when a line comes, and says what it took when it is over."""

    def __init__(self, about: dict[str, Any]) -> None:
        self.about, self.targets, self.began = about, 0, 0.0

    def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
        if self.about:
            print(json.dumps(self.about), flush=True)
            self.about = {}
        if not sys.stdin.readline():
            trainer.should_stop = True
        self.targets, self.began = 0, time.perf_counter()

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
        self.targets += int((batch["y"] != 0).sum())  # 0 fills up the shorter sequences

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        loss = float(trainer.callback_metrics["train_loss"]) if "train_loss" in trainer.callback_metrics else None
        print(json.dumps({"targets": self.targets, "seconds": time.perf_counter() - self.began, "loss": loss}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder NAME with NAME.csv in it")
    parser.add_argument("--d", type=int, required=True)
    parser.add_argument("--length", type=int, required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--batches", type=int, required=True, help="batches a line")
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(options.threads)
    events = pandas.read_csv(options.data / f"{options.data.name}.csv", names=[Columns.User, Columns.Item, Columns.Datetime])
    events[Columns.Datetime] = pandas.to_datetime(events[Columns.Datetime], unit="s")
    events[Columns.Weight] = 1.0
    rounds = Rounds({"samples": int(events[Columns.User].nunique()), "items": int(events[Columns.Item].nunique())})

    def trainer(**_: Any) -> Trainer:
        return Trainer(
            accelerator="cpu", max_epochs=-1, limit_train_batches=options.batches, callbacks=[rounds],
            logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip

    # RecTools' defaults but for what all contenders share: d, length, loss.
    model = SASRecModel(n_factors=options.d, session_max_len=options.length, loss="softmax", batch_size=options.batch_size, get_trainer_func=trainer)
    model.fit(Dataset.construct(events))


if __name__ == "__main__":
    main()
