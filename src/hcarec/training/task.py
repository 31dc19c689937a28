"""The task of a run: model, data, how they are divided, what is judged by which rules."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hcarec import artefact
from hcarec import protocol as protocols
from hcarec.data.split import Part, Split, split
from hcarec.errors import ConfigError
from hcarec.models import Model
from hcarec.models.network import has_counting
from hcarec.sequences import Sequences
from hcarec.settings import RunSettings
from hcarec.training import recipe, sizing
from hcarec.training.callbacks import Callback
from hcarec.training.fusing import Judged
from hcarec.training.trainer import Trainer
from hcarec.training.trainers import check_learnable, settle, trainer_of


@dataclass(frozen=True)
class Rules:
    """How a run is judged: what chooses the epoch, whether seen items are hidden, k of metrics."""

    selection: str
    hide_seen: bool
    ks: tuple[int, ...]
    counting: dict[str, Any] | None = None
    """What an evaluated model chose for the counting term, where it is to be taken over."""


class Task:
    """What a run is to do; all of it but `safe` is known before the first epoch."""

    def __init__(
        self,
        model: Model,
        data: Sequences,
        out: Path | None,
        rules: Rules,
        run: RunSettings,
        callback: Callback,
        keep_model: bool,
    ) -> None:
        self.model, self.data, self.out, self.run, self.callback = model, data, out, run, callback
        self.selection, self.hide_seen, self.ks = rules.selection, rules.hide_seen, rules.ks
        self.counting, self.keep_model = rules.counting, keep_model
        self.safe = False
        """Whether what is left is to be done on the CPU, because the device has failed."""

    def divide(self, how: str, ratio: float, at: Any) -> None:
        """Split the data; a model that counts takes all that comes before the test."""
        if how == "none":
            self.selection = "none"
        self.parts: Split = split(self.data, how, ratio=ratio, at=at, validation=self.validates)
        trains = self.model.config.trains
        self.train_part: Part = self.parts.train if trains else self.parts.history
        if len(self.train_part.items) == 0:
            raise ConfigError(
                f"the split '{how}' leaves no event to train on: give more data or another split"
            )
        wanted = self.parts.validated if self.validates else self.parts.evaluated
        if how != "none" and not wanted.any():
            what = "validate" if self.validates else "test"
            raise ConfigError(
                f"the split '{how}' leaves no user to {what} with:"
                " give longer histories, or --split none"
            )
        check_learnable(self.model, self.train_part, f"with the split '{how}' ")
        # What epochs are judged by.
        self.judged: Judged | None = None
        if self.parts.validation is not None:
            self.judged = Judged(self.parts.train, self.parts.validation, self.parts.validated)
        elif self.selection == "best-epoch-on-test":
            self.judged = Judged(self.parts.history, self.parts.test, self.parts.evaluated)
        usual = 10 if how == "leave-one-out" else 20
        self.metric = f"ndcg@{usual if usual in self.ks else max(self.ks)}"
        self.protocol = protocols.protocol(
            self.data, self.parts.protocol, self.selection, self.hide_seen, self.ks
        )

    @property
    def validates(self) -> bool:
        """Say whether validation events choose the epoch."""
        return self.selection == "validation"

    def settle(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Decide on device and whatever else is left to the data; return what the preset decided
        and what goes with the plan, in words."""
        if not self.model.config.trains:
            self.run = replace(self.run, device=Trainer.choose_device(self.run.device))
            return (), ()
        kind = trainer_of(self.model)
        self.run = replace(self.run, device=kind.choose_device(self.run.device))
        decided, elsewhere = self._apply_recipe() if self.model.config.open else ((), None)
        note = settle(self.model, self.run.device)
        if (
            has_counting(self.model) and find_spec("numba") is None
        ):  # a machine for GPUs may lack it
            raise ConfigError(
                "the counting term needs the package numba, which is not installed:"
                " pip install numba, or --set counting=false"
            )
        device = kind.describe_device(self.run.device, self.model)
        return decided, tuple(filter(None, (device, elsewhere, note)))

    def _apply_recipe(self) -> tuple[tuple[str, ...], str | None]:
        """Let the preset decide what it leaves open; say what, and what a GPU would get."""
        evaluated, machine = int(self.parts.evaluated.sum()), sizing.Machine.here(self.run.device)
        judged = self.judged is not None
        run = sizing.Run(self.data, self.train_part, evaluated, judged, self.validates)
        decision = recipe.decide(self.model, run, machine)
        return decision.lines, decision.elsewhere

    def identity(self) -> dict[str, Any]:
        """Return what two runs must share for one to go on with the other; `epochs` may grow."""
        config = json.loads(json.dumps(self.model.config.as_dict()))  # tuples as JSON has them
        training = self.model.config.training
        if training is None or not training.depends_on_epochs:
            config.pop("epochs", None)
        taken = {} if self.counting is None else {"counting": self.counting}
        return taken | {
            "config": config,
            "data": self.data.fingerprint,
            "split": self.parts.protocol,
            "selection": self.selection,
            "seen": self.hide_seen,
            "k": list(self.ks),
            "seed": self.run.seed,
            "device": self.run.device,
            "epochs": self.model.config.epochs,
        }

    @property
    def ranks_on(self) -> str:
        """Return what the trained model is judged on."""
        return "cpu" if self.safe else self.run.device

    @property
    def holds_finished(self) -> bool:
        """Say whether the folder holds a finished model."""
        return self.out is not None and artefact.is_finished(self.out)
