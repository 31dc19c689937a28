"""A small shop for the tests of the page: named items, some of them with names that are markup, two models, and a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from hcarec import GRU, HCAGRU, Sequences, synthetic
from hcarec.training import train
from http_server import Running

SCRIPT = "<script>document.body.remove()</script>"
IMAGE = "<img src=x onerror=document.body.remove()>"
SHOUTED = "WHITE HANGING HEART"
MAIN, OTHER = "with-attention", "without"


@cache
def data() -> Sequences:
    """Return a log whose most frequent items have names that a careless page would run, and fields of the same kind."""
    log = synthetic(users=80, items=90, mean_length=14)
    names = {item: log.title(n) for n, item in enumerate(log.item_ids.texts())}
    counts = [sum(int(item) == n for item in log.items) for n in range(log.n_items)]
    often = sorted(range(log.n_items), key=lambda n: -counts[n])
    ids = list(log.item_ids.texts())
    for place, title in enumerate((SCRIPT, IMAGE, SHOUTED)):
        names[ids[often[place]]] = title
    return log.with_titles(names, {"category": dict.fromkeys(ids, "<i>things</i>")})


def item_named(title: str) -> str:
    """Return the id of an item by its name."""
    return next(item for n, item in enumerate(data().item_ids.texts()) if data().title(n) == title)


def save_models(folder: Path) -> None:
    """Train the two models, so that their folders say how well they did."""
    train(data(), folder / MAIN, model="hca-gru", preset="paper", window_x=3, window_h=2, d=8, epochs=3, seed=1)
    train(data(), folder / OTHER, model="gru", preset="paper", d=8, epochs=3, seed=1)


def save_plain(folder: Path) -> None:
    """Make the same two models quickly, without figures."""
    HCAGRU(preset="paper", d=8, window_x=3, window_h=2).fit(data(), epochs=2, seed=1).save(folder / MAIN)
    GRU(preset="paper", d=8).fit(data(), epochs=2, seed=1).save(folder / OTHER)


@contextmanager
def shop(folder: Path, **settings: Any) -> Iterator[Running]:
    """Run a server on the models of a folder, with two users in its store: anna, of 40 events, and ben, of 3."""
    with Running(folder / MAIN, folder / "store.sqlite", **settings) as running:
        running.wait(running.site.service.take(_events()))
        yield running


def _events() -> list[Any]:
    from hcarec.serve.messages import NewEvent

    ids = list(data().item_ids.texts())
    anna = [NewEvent("anna", ids[(7 * n) % len(ids)], (1_700_000_000 + 3600 * n) * 1_000_000, f"a{n}") for n in range(40)]
    ben = [NewEvent("ben", ids[n], (1_700_000_000 + n) * 1_000_000, None) for n in range(3)]
    return anna + ben
