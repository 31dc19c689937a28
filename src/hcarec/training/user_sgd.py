"""The paper's trainer: users in random order, one step of plain SGD each, one negative per step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hcarec.data.split import Part
from hcarec.hardware import Cost
from hcarec.models import Model
from hcarec.ops.parameters import Theta
from hcarec.settings import UserSGDSettings
from hcarec.training.trainer import Diverged, Progress, Trainer, TrainerState, check_parameters

CHUNK = 1024
"""Users trained between two looks at the clock, at Ctrl-C and at the loss."""
OPERATIONS = 7e9
"""Arithmetic operations a second that one core reaches, about (see benchmarks/train_cpu.py)."""
SUMS: dict[str, float] = {"l2": 0.0, "users_without_negative": 0}
"""What is added up over an epoch beside the loss."""
ADVICE = "try a smaller learning rate (--set learning_rate=..) or a larger l2 (--set l2=..)"


class UserSGD(Trainer):
    """Trains in place; order and negatives are pure functions of seed, epoch, user and step.

    So its state is the parameters and a position: chunks begin at fixed places, and a run gives
    the same bits however often it is interrupted.
    """

    name = "user-sgd"

    @classmethod
    def cost(cls, model: Model, part: Part, n_items: int, threads: int) -> Cost:
        operations = len(part.items) * model.operations_per_event(n_items, len(part))
        sizes = model.shapes(n_items, len(part))["X"]
        work = 64 * 4 * int(part.lengths.max(initial=1)) * sizes[1]
        return Cost(operations / OPERATIONS, work)

    @property
    def parameters(self) -> Theta:
        return self.model.theta

    def warm(self) -> None:
        self.model.warm_training()

    def epoch(self, number: int) -> Iterator[Progress]:
        from hcarec.ops.streams import epoch_order

        n_users = len(self.part)
        order = epoch_order(n_users, self.run.seed, number)
        if self.progress.epoch != number:
            self.progress = Progress(number, 0, n_users, sums=SUMS)
        while not self.progress.complete:
            begin = self.progress.position
            self.progress = self._train(order[begin : begin + CHUNK])
            yield self.progress

    def _train(self, users: np.ndarray) -> Progress:
        """Train on a chunk of users and return where the epoch stands then."""
        now, part, settings = self.progress, self.part, self.model.config.training
        assert isinstance(settings, UserSGDSettings)
        done = self.model.train_users(
            part.items, part.offsets, users, settings, self.run.seed, now.epoch
        )
        self.model.parameters_changed()
        if done.bad_position >= 0:
            user = int(users[done.bad_position])
            raise Diverged(now.epoch, f"user {user}, step {done.bad_step}", ADVICE, user)
        sums = {
            "l2": now.sums["l2"] + done.l2,
            "users_without_negative": now.sums["users_without_negative"] + done.without_negative,
        }
        position, targets = now.position + len(users), now.targets + done.steps
        return Progress(now.epoch, position, now.size, targets, now.loss + done.loss, sums)

    def state(self) -> TrainerState:
        return TrainerState(self.progress._asdict(), self.model.theta)

    def restore(self, state: TrainerState) -> None:
        progress = Progress.of(state.values)
        progress.check(len(self.part), SUMS)
        check_parameters(self.model, state.tensors)
        self.progress, self.model.theta = progress, state.tensors
        self.model.parameters_changed()
