"""`hcarec demo`: the main job, end to end, on the default data set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from hcarec.cli.console import console
from hcarec.errors import DownloadError

if TYPE_CHECKING:
    from hcarec.models import Model
    from hcarec.sequences import Sequences

DEFAULT = "online-retail"
CONTENDERS: dict[str, dict[str, Any]] = {
    "pop": {},
    "bpr": {"epochs": 40},
    "gru": {"epochs": 20},
    "hca-gru": {"epochs": 20, "window_x": 5, "window_h": 5},
}
"""What is trained, with few epochs: the demo is to be short, the paper's 100 give better figures."""
METRICS = ("recall@5", "recall@20", "map@20", "ndcg@20", "auc")


def demo(
    out: Annotated[Path, Option("--out", "-o", metavar="FOLDER", help="Folder for everything that the demo makes.")] = Path("hcarec-demo"),
    seed: Annotated[int, Option(help="Seed of all random numbers.")] = 0,
) -> None:
    """Do the main job, end to end, on real data: prepare, inspect, train, compare, recommend, explain."""
    data = prepare_default(out / "data")
    _inspect(data, out)
    _train(data, out, seed)
    _use(data, out, seed)


def prepare_default(target: Path) -> Sequences:
    """Prepare the default data set, or the synthetic log where that cannot be had."""
    from hcarec.cli.prepare import run, show

    shown = console()
    try:
        _say(f"hcarec prepare {DEFAULT} -o {target}")
        data = run(DEFAULT, target)
    except DownloadError as error:
        shown.print(f"{error}")
        shown.print("so the synthetic log serves instead: made here, of no real shop", style="bold")
        data = run("synthetic", target)
    show(data, target)
    return data


def _inspect(data: Sequences, out: Path) -> None:
    from hcarec.cli.inspect import draw, look
    from hcarec.cli.inspect_view import render

    _say(f"hcarec inspect {out / 'data'}")
    report = look(data)
    render(report, console())
    console().print(f"distributions drawn in {draw(report, out / 'inspect.png')}")


def _train(data: Sequences, out: Path, seed: int) -> None:
    """Train every contender and print them side by side."""
    from rich.table import Table

    from hcarec.cli.train_view import LiveTable, span
    from hcarec.training import train

    table = Table(box=None, padding=(0, 3, 0, 0))
    for heading in ("%", *METRICS, "epoch", "training", "events/s"):
        table.add_column(heading, justify="left" if heading == "%" else "right")
    for name, settings in CONTENDERS.items():
        options = "".join(f" --{option.replace('_', '-')} {value}" for option, value in settings.items())
        _say(f"hcarec train {out / 'data'} -o {out / name} --model {name}{options}")
        with LiveTable() as watch:
            model = train(data, out / name, model=name, seed=seed, watch=watch, **settings)
        metrics, done = model.about["metrics"], model.about["training"]
        trained: tuple[str, ...] = ()
        if model.config.trains:
            trained = str(model.about["selection"]["epoch"]), span(done["seconds"]), f"{done['events'] * done['epochs'] / done['seconds']:,.0f}"
        table.add_row(model.config.title, *(f"{100 * metrics[metric]:.2f}" for metric in METRICS), *trained)
    console().print(table)
    counts = model.about["protocol"]["split"]["counts"]
    console().print(f"{counts['users_evaluated']:,} users, {counts['test_items']:,} test items, the whole catalogue ranked; epochs chosen by validation")


def _use(data: Sequences, out: Path, seed: int) -> None:
    """Train once more on everything, then recommend for one user and explain it."""
    from hcarec.cli.explain_view import render
    from hcarec.cli.recommend import show
    from hcarec.cli.train_view import LiveTable
    from hcarec.explanation import explain
    from hcarec.training import train

    final = out / "model"
    _say(f"hcarec train {out / 'data'} -o {final} --model hca-gru --split none --epochs-from {out / 'hca-gru'}")
    with LiveTable() as watch:
        model: Model = train(data, final, model="hca-gru", split="none", epochs_from=out / "hca-gru", seed=seed, watch=watch, window_x=5, window_h=5)
    user = _ordinary_user(data)
    history = [data.item_ids[item] for item in data[user]]
    _say(f"hcarec recommend {final} --user {data.user_ids.text(user)} -k 5")
    console().print(f"the last of {len(history)} events of user {data.user_ids.text(user)}: " + "; ".join(data.title(item) for item in data[user][-5:]))
    show(model, model.recommend(history, 5), None, "what comes next")
    _say(f"hcarec explain {final} --user {data.user_ids.text(user)}")
    render(explain(model, history), console())


def _ordinary_user(data: Sequences) -> int:
    """Choose the first user whose history is of the median length."""
    import numpy as np

    return int(np.argmin(np.abs(data.lengths - np.median(data.lengths))))


def _say(command: str) -> None:
    console().print(f"\n$ {command}", style="bold")
