"""`hcarec train`: from a prepared data set to a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option

from hcarec.cli.console import console, emit_json
from hcarec.config import parse_settings
from hcarec.errors import ConfigError
from hcarec.settings import DEFAULT_PRESET

if TYPE_CHECKING:
    from hcarec.models import Model
    from hcarec.sequences import Sequences


def train(
    data: Annotated[Path, Argument(metavar="DATA", help="Folder made by 'hcarec prepare'.")],
    out: Annotated[Path, Option("--out", "-o", metavar="MODEL", help="Folder to write the model to.")],
    model: Annotated[str | None, Option(help="random, pop, markov, item-knn, bpr, gru, hca-gru or sasrec. By default hca-gru, or that of --config.")] = None,
    window_x: Annotated[int | None, Option(help="Inputs that hca-gru's attention on the input looks at; 1 turns it off. By default 5.")] = None,
    window_h: Annotated[int | None, Option(help="Hidden states that its attention on the hidden state looks at; 1 turns it off. By default 5.")] = None,
    preset: Annotated[str | None, Option(help=f"The recipe of gru, hca-gru and sasrec: modern (needs torch), or paper. By default {DEFAULT_PRESET}.")] = None,
    trainer: Annotated[str | None, Option(help="How it learns: user-sgd, one user a step, or minibatch (needs torch). By default the preset's.")] = None,
    config: Annotated[Path | None, Option(metavar="FILE|MODEL", help="Settings from a TOML file or a model folder; options and --set go first.")] = None,
    epochs: Annotated[int | None, Option(help="Times through all users; the preset's by default.")] = None,
    epochs_from: Annotated[
        Path | None, Option(metavar="MODEL", help="Take the number of epochs that this evaluated model chose, and what the preset and counting chose.")
    ] = None,
    split: Annotated[str, Option(help="ratio, leave-one-out, time, or none to train on everything.")] = "ratio",
    ratio: Annotated[float, Option(help="Share of each user's events that train (of all events, for the split time).")] = 0.8,
    at: Annotated[str | None, Option(help="Date that the split time cuts at.")] = None,
    selection: Annotated[str, Option(help="How the epoch is chosen: validation, or best-epoch-on-test as in the paper.")] = "validation",
    hide_seen: Annotated[bool, Option("--hide-seen", help="Make it the model's rule to leave items of the history out of its recommendations.")] = False,
    seed: Annotated[int, Option(help="Seed of all random numbers.")] = 0,
    runs: Annotated[int, Option(help="Train this many seeds at once, from --seed on, one process each, into MODEL/seed-N.")] = 1,
    threads: Annotated[int | None, Option(help="Threads; all cores by default. The trainer user-sgd takes one.")] = None,
    device: Annotated[str, Option(help="What computes: auto, cpu or cuda.")] = "auto",
    settings: Annotated[list[str] | None, Option("--set", metavar="KEY=VALUE", help="Any other setting: d, learning_rate, l2, .. May be repeated.")] = None,
    resume: Annotated[bool, Option("--resume", help="Go on with an interrupted run, or a finished one with more epochs.")] = False,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace the model that MODEL holds, once the new one is whole.")] = False,
    refit: Annotated[bool, Option("--refit", help="Then train once more on everything, for the chosen number of epochs, for use in production.")] = False,
    tensorboard: Annotated[Path | None, Option(metavar="FOLDER", help="Write TensorBoard events there.")] = None,
    json: Annotated[str | None, Option(metavar="FILE", help="Write the outcome as JSON to a file, or to standard output with '-'.")] = None,
) -> None:
    """Train a model, watching loss and metrics; Ctrl-C stops cleanly, --resume goes on."""
    from hcarec.artefact import is_finished
    from hcarec.cli.train_view import LiveTable, show
    from hcarec.training import train as train_model

    options: dict[str, Any] = {
        "model": model,
        "config": config,
        "epochs_from": epochs_from,
        "split": split,
        "ratio": ratio,
        "at": at,
        "selection": selection,
        "hide_seen": hide_seen,
        "threads": threads,
        "device": device,
        "resume": resume,
        "overwrite": overwrite,
    }
    given = {"window_x": window_x, "window_h": window_h, "epochs": epochs, "preset": preset, "trainer": trainer}
    options |= {name: value for name, value in given.items() if value is not None} | _settings(settings or [])
    if runs != 1:
        if runs < 1 or refit or tensorboard is not None:
            raise ConfigError("--runs takes a number of at least 1, and goes neither with --refit nor with --tensorboard")
        return _several(data, out, runs, seed, options, json)
    from hcarec.sequences import Sequences

    sequences = Sequences.open(data)
    with LiveTable(tensorboard) as table:
        trained = train_model(sequences, out, seed=seed, callback=table, **options)
    if refit and trained.about["finished"]:
        trained = _refit(trained, sequences, out, seed, options)
    if json is not None:
        emit_json(json, {"model": trained.config.title, **trained.about})
    done, finished = trained.about["training"]["epochs"], trained.about["finished"]
    kept = not finished and is_finished(out)
    if json != "-" and not kept and (finished or done):
        show(trained, out)
    if not finished:
        there = "the model that was there before stays until this one is finished" if kept else "" if done else "there is no model yet"
        console(stderr=True).print(f"stopped after {done} epoch{'s' * (done != 1)}{', ' * bool(there)}{there}; go on with --resume")
        raise Exit(130)


def _settings(given: list[str]) -> dict[str, Any]:
    """Read --set; it takes what a model is made with, not how it is run."""
    import inspect

    from hcarec.training import train as train_model

    parsed, options = parse_settings(given), inspect.signature(train_model).parameters
    for name in parsed:
        if name in options:
            raise ConfigError(f"there is no setting '{name}': --set takes what a model is made with, other things have options of their own")
    return parsed


def _refit(trained: Model, sequences: Sequences, out: Path, seed: int, options: dict[str, Any]) -> Model:
    """Train once more on everything; the evaluated model is replaced only when that is done."""
    from hcarec import artefact
    from hcarec.cli.train_view import LiveTable
    from hcarec.training import train as train_model

    before = artefact.read(out)
    again = {**options, "split": "none", "resume": False, "overwrite": False}
    if trained.config.trains:
        again.pop("epochs", None)
        again["epochs_from"] = out
    with LiveTable() as table:
        refitted = train_model(sequences, seed=seed, callback=table, **again)
    if refitted.about["finished"]:
        kept = {name: before.about[name] for name in ("protocol", "selection", "metrics", "yardsticks") if name in before.about}
        tuned = before.about["training"].get("fine_tuning")
        refitted.about["evaluated"] = kept | ({} if tuned is None else {"fine_tuning": tuned})
        refitted.save(out, before.log, keep_checkpoint=trained.config.trains)
    return refitted


def _on_gpu(options: dict[str, Any]) -> bool:
    """Say whether runs with these options compute on a GPU."""
    import inspect

    from hcarec.models import make, read_config
    from hcarec.training import train as train_model
    from hcarec.training.trainers import trainer_of

    settings = {name: value for name, value in options.items() if name not in inspect.signature(train_model).parameters}
    config = read_config(options["config"], options["model"]) if options["config"] is not None else {}
    given: dict[str, Any] = {"model": options["model"] or "hca-gru"} | config | settings
    model = make(**given)
    return model.config.trains and trainer_of(model).choose_device(options["device"]) == "cuda"


def _several(data: Path, out: Path, runs: int, first_seed: int, options: dict[str, Any], json: str | None) -> None:
    import contextlib

    from hcarec import sharing
    from hcarec.cli.train_view import show_runs, watch_runs
    from hcarec.parallel import Job, train_several

    jobs = [Job(out / f"seed-{seed}", {**options, "seed": seed}) for seed in range(first_seed, first_seed + runs)]
    with contextlib.ExitStack() as stack:
        if _on_gpu(options):
            how = stack.enter_context(sharing.card())
            console(stderr=True).print(f"runs that compute on the GPU share it {how}", markup=False)
        outcomes = train_several(data, jobs, stack.enter_context(watch_runs(runs)))
    if json is not None:
        emit_json(json, outcomes)
    if json != "-":
        show_runs(outcomes, out)
