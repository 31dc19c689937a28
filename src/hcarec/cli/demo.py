"""`hcarec demo`: the main job, end to end, on the default data set."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from hcarec.cli.console import console, working
from hcarec.errors import DownloadError

if TYPE_CHECKING:
    from hcarec.data.inspect import Report
    from hcarec.models import Model
    from hcarec.sequences import Sequences

DEFAULT = "online-retail"
BASELINES: dict[str, dict[str, Any]] = {"pop": {}, "markov": {}, "bpr": {"epochs": 40}}
"""What HCA-GRU is compared with."""
SMALLER: dict[str, Any] = {"preset": "modern", "d": 48, "length": 50, "epochs": 8, "evaluate_every": 2, "learning_rate": 0.002}
"""HCA-GRU with torch: the preset `modern` in a size that two cores train within two minutes.

The learning rate is twice the preset's: of three trials on Online Retail, one seed each, this had the best
validation NDCG@20, 17.47%; with the preset's learning rate it was 17.14%, and 17.39% after 12 epochs.
Everything else, the counting term among it, is what the preset decides for the log.
"""
PAPER: dict[str, Any] = {"preset": "paper", "epochs": 20, "window_x": 5, "window_h": 5}
"""HCA-GRU without torch: the paper's settings with few epochs, its 100 give better figures."""
SERVED = ("hca-gru", "markov")
"""What is served, with its figures: the first answers, the other stands beside it."""
OPTIONS = ("preset", "epochs", "window_x", "window_h")
"""Settings that have options of their own; `--set` takes the others."""


def demo(
    out: Annotated[Path, Option("--out", "-o", metavar="FOLDER", help="Folder for everything that the demo makes.")] = Path("hcarec-demo"),
    data: Annotated[str, Option(metavar="NAME", help="A known data set; see 'hcarec prepare --list'. 'synthetic' needs no network.")] = DEFAULT,
    seed: Annotated[int, Option(help="Seed of all random numbers.")] = 0,
    port: Annotated[int, Option(help="Port of the page; where it is taken, a free one.")] = 8080,
) -> None:
    """Do the main job, end to end, on real data: prepare, inspect, train, compare, recommend, explain, report, serve.

    At the end it serves the page until Ctrl-C; without a terminal it checks that the page answers, and stops.
    """
    Demo(out, seed).run(data, port)


class Demo:
    """One run of the demo, and the commands that would do the same."""

    def __init__(self, out: Path, seed: int) -> None:
        self.out, self.seed = out, seed
        self.commands: list[str] = []

    def run(self, name: str, port: int) -> None:
        """Do everything."""
        data = self.prepare(name)
        log = self.inspect(data)
        models = self.compare(data)
        self.use(data, log, models)
        from hcarec.cli.demo_page import STORE, show_page

        model, beside = (self.out / name for name in SERVED)
        self.say(f"hcarec serve {model} --beside {beside} --data {self.out / 'data'} --store {self.out / STORE}")
        show_page(self.out, port)

    def say(self, command: str) -> None:
        """Show the command for what comes next."""
        self.commands.append(command)
        console().print(f"\n$ {command}", style="bold")

    def prepare(self, name: str) -> Sequences:
        """Prepare a known data set, or the synthetic log where it cannot be had."""
        from hcarec.cli.prepare import run, show

        target = self.out / "data"
        self.say(f"hcarec prepare {name} -o {target}")
        try:
            data = run(name, target)
        except DownloadError as error:
            console().print(f"{error}")
            console().print("so the synthetic log serves instead: made here, of no real shop", style="bold")
            data = run("synthetic", target)
        show(data, target)
        return data

    def inspect(self, data: Sequences) -> Report:
        """Look the log over."""
        from hcarec.cli.inspect import draw, look
        from hcarec.cli.inspect_view import render

        self.say(f"hcarec inspect {self.out / 'data'}")
        report = look(data)
        render(report, console())
        console().print(f"distributions drawn in {draw(report, self.out / 'inspect.png')}")
        return report

    def compare(self, data: Sequences) -> list[Model]:
        """Train every contender and print them side by side."""
        from rich.table import Table

        from hcarec.cli.demo_report import METRICS
        from hcarec.cli.train_view import span
        from hcarec.training.yardsticks import words

        table = Table(box=None, padding=(0, 3, 0, 0))
        for heading in ("%", *METRICS, "epoch", "training", "events/s"):
            table.add_column(heading, justify="left" if heading == "%" else "right")
        models = []
        for name, settings in contenders().items():
            model = self._train(data, name, f"--model {name}{as_options(settings)}", **settings)
            metrics, done = model.about["metrics"], model.about["training"]
            trained: tuple[str, ...] = ()
            if model.config.trains:
                trained = str(model.about["selection"]["epoch"]), span(done["seconds"]), f"{done['events'] * done['epochs'] / done['training_seconds']:,.0f}"
            table.add_row(model.config.title, *(f"{100 * metrics[metric]:.2f}" for metric in METRICS), *trained)
            models.append(model)
        console().print(table)
        counts = model.about["protocol"]["split"]["counts"]
        console().print(f"{counts['users_evaluated']:,} users, {counts['test_items']:,} test items, the whole catalogue ranked; epochs chosen by validation")
        console().print(words(model.config.title, model.about["metrics"], model.about["yardsticks"]))
        return models

    def _train(self, data: Sequences, name: str, words: str, **settings: Any) -> Model:
        from hcarec.cli.train_view import LiveTable
        from hcarec.training import train

        self.say(f"hcarec train {self.out / 'data'} -o {self.out / name} {words}")
        with LiveTable() as table:
            model = train(data, self.out / name, model=name, seed=self.seed, overwrite=True, callback=table, **settings)
        if not model.about["finished"]:
            raise KeyboardInterrupt
        return model

    def use(self, data: Sequences, log: Report, models: list[Model]) -> None:
        """Recommend for one user, explain it, and write the report."""
        from hcarec.cli import demo_report
        from hcarec.cli.explain_view import render
        from hcarec.cli.recommend import show
        from hcarec.explanation import explain

        user, folder, model = ordinary_user(data), self.out / SERVED[0], next(one for one in models if one.name == SERVED[0])
        name, history = data.user_ids.text(user), [data.item_ids[item] for item in data[user]]
        self.say(f"hcarec recommend {folder} --user {name} -k 5")
        console().print(f"the last of {len(history)} events of user {name}: " + "; ".join(data.label(item) for item in data[user][-5:]))
        best = model.recommend(history, 5)
        show(model, best, None, "what comes next")
        self.say(f"hcarec explain {folder} --user {name}")
        why = explain(model, history)
        render(why, console())
        with working("writing the report"):
            written = demo_report.write(self.out / "report.html", log, models, name, best, why, self.commands)
        console().print(f"\nall of this, with figures: {written.resolve()}", style="bold")
        preset = model.config.as_dict()["preset"]
        console().print(f"for use, train on everything: hcarec train {self.out / 'data'} -o model --preset {preset} --split none --epochs-from {folder}")


def contenders() -> dict[str, dict[str, Any]]:
    """Return the settings of every model that is trained, and say which recipe HCA-GRU gets."""
    if find_spec("torch") is not None:
        network = SMALLER
        sizes = ", ".join(f"{name} {value}" for name, value in SMALLER.items() if name != "preset")
        console().print(f"HCA-GRU is trained by the default's recipe in a smaller size: {sizes}", markup=False)
    else:
        network = PAPER
        console().print(
            "HCA-GRU is trained with the paper's preset, because torch is not installed: pip install 'hcarec[torch]' for the default's recipe", markup=False
        )
    return BASELINES | {"hca-gru": network}


def as_options(settings: Mapping[str, Any]) -> str:
    """Return settings as `hcarec train` takes them, a space before each."""
    return "".join(f" --{name.replace('_', '-')} {value}" if name in OPTIONS else f" --set {name}={value}" for name, value in settings.items())


def ordinary_user(data: Sequences) -> int:
    """Choose the first user whose history is of the median length."""
    import numpy as np

    return int(np.argmin(np.abs(data.lengths - np.median(data.lengths))))
