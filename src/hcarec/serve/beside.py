"""Further models beside the one being served: they answer when they are named, and keep no states.

For each ask the user's log is replayed. That is slower, and the answer is exactly what the model would give if it were served.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hcarec.errors import ConfigError
from hcarec.serve.live import Known
from hcarec.serve.messages import ModelCard
from hcarec.serve.people import Person
from hcarec.serve.serving import Serving
from hcarec.serve.stores.interface import History


class Beside:
    """The models that may be named; `named` holds those other than the one being served, which may change."""

    def __init__(self, named: Mapping[str, Serving]) -> None:
        self._named = dict(named)

    @classmethod
    def load(cls, folders: Iterable[Path], serving: Serving) -> Beside:
        """Load models from their folders; each is called as its folder is, with a number behind where that is taken."""
        named: dict[str, Serving] = {}
        for folder in folders:
            other = Serving.load(Path(folder))
            named[_free(other.folder, {serving.folder, *named})] = other
        return cls(named)

    def pick(self, name: str | None, serving: Serving) -> Serving:
        """Return the model of a name, the one being served where none is given."""
        if name is None or name == self.name_of(serving):
            return serving
        if name not in self._named:
            raise ConfigError(f"there is no model {name[:100]!r} here: GET /v1/models lists those that there are")
        return self._named[name]

    def name_of(self, serving: Serving) -> str:
        """Return what the model being served is called; after a swap its folder may be called as another one."""
        return _free(serving.folder, self._named)

    def cards(self, serving: Serving) -> list[ModelCard]:
        """Describe all models, the one being served first."""
        others = [_card(name, other, False) for name, other in self._named.items()]
        return [_card(self.name_of(serving), serving, True), *others]


def replayed(serving: Serving, history: History) -> Known:
    """Return a user as a model sees it that keeps no states."""
    log = serving.known([event.item for event in history.events])
    row = serving.advance([None], [log])[0] if serving.stateful and len(log) else None
    return Known(serving, Person(history.version, None, row, log))


def _free(name: str, taken: Collection[str]) -> str:
    """Return a name that is not taken."""
    numbered = (f"{name}-{number}" for number in range(2, len(taken) + 3))
    return name if name not in taken else next(one for one in numbered if one not in taken)


def _card(name: str, serving: Serving, served: bool) -> ModelCard:
    model = serving.model
    evaluated = model.about.get("evaluated") or model.about  # a model trained on everything shows the figures of the run before
    parts = {part: _public(model.about.get(part) or {}) for part in ("data", "protocol")}
    parts |= {part: _public(evaluated.get(part) or {}) for part in ("metrics", "yardsticks")}
    config = _public(model.config.as_dict())
    return ModelCard(name, serving.name, model.config.title, served, len(model.item_ids), model.has_attention, model.hide_seen, config, **parts)


def _public(value: Any) -> Any:
    """Return a part of model.json without the paths of the machine that made it."""
    if isinstance(value, Mapping):
        return {str(key): _public(each) for key, each in value.items() if key != "path"}
    if isinstance(value, (list, tuple)):
        return [_public(each) for each in value]
    if isinstance(value, np.generic):
        return value.item()
    return os.path.basename(value) if isinstance(value, str) and os.path.isabs(value) else value
