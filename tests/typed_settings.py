"""What a type checker finds in settings: `make check` fails where an error below is no longer found."""

from __future__ import annotations

import hcarec
from hcarec import GRU, HCAGRU, ItemKNN, Markov, Pop, SASRec


def right(data: hcarec.Sequences) -> None:
    """Take settings that there are, of the right types."""
    GRU(epochs=3, learning_rate=0.1)
    HCAGRU(window_x=2, d=8, preset="paper")
    Markov(history_weights=(1.0, 0.5))
    SASRec(heads=4, length=50)
    hcarec.train(data, model="item-knn", neighbors=50)
    hcarec.train(data, model="sasrec", heads=4, d=32)


def wrong(data: hcarec.Sequences) -> None:
    """Take settings that there are not, or of a wrong type; each line is an error, and is expected to be one."""
    GRU(epoch=3)  # type: ignore[call-arg]
    GRU(epochs="3")  # type: ignore[arg-type]
    HCAGRU(windowx=2)  # type: ignore[call-arg]
    Pop(epochs=3)  # type: ignore[call-arg]
    ItemKNN(neighbours=50)  # type: ignore[call-arg]
    SASRec(window_x=3)  # type: ignore[call-arg]
    hcarec.train(data, model="gru", epoch=3)  # type: ignore[call-arg]
    hcarec.train(data, model="gru", d="8")  # type: ignore[arg-type]
