"""`hcarec experiment`: the paper's tables and figures, the contest and the ablation, on any log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Context, Exit, Option

from hcarec.cli.console import bar, console, emit_json
from hcarec.config import parse_settings
from hcarec.errors import ConfigError, nearest

PAPER_ONLY = ("widths", "k", "selection", "window_x", "window_h", "window_both", "titles", "max_user_events", "user")
"""Options that `contest` and `ablation` do not have."""
TRIALS_ONLY = ("device", "methods", "minutes", "merge")
"""Options that they alone have."""


def experiment(
    context: Context,
    name: Annotated[
        str,
        Argument(
            metavar="NAME",
            help="datasets, methods, widths, complete, attention (Tables 3, 2, Figure 2, Tables 4, 5), or all (these five); contest; ablation.",
        ),
    ],
    data: Annotated[list[str] | None, Option(metavar="NAME=RAW", help="A data set: a raw log, a prepared folder or a known name. May be repeated.")] = None,
    out: Annotated[Path, Option("--out", "-o", metavar="RESULTS", help="Folder of results; runs that are finished there are not done again.")] = Path(
        "results"
    ),
    runs: Annotated[int | None, Option(help="Seeds of every method; 4 by default, 3 of contest and ablation.")] = None,
    first_seed: Annotated[int, Option(help="The first of them.")] = 0,
    epochs: Annotated[
        int | None, Option(help="Times through all users, 100 by default; in contest and ablation the most of any run, whose methods have their own.")
    ] = None,
    widths: Annotated[str, Option(help="Window widths to try.")] = "2,3,4,5",
    k: Annotated[str, Option("-k", "--k", help="Lengths of the list that metrics are cut at.")] = "5,10,15,20",
    selection: Annotated[str, Option(help="How the epoch is chosen: best-epoch-on-test as in the paper, validation, or both.")] = "best-epoch-on-test",
    window_x: Annotated[int | None, Option(help="Width of HCA-GRU-x in methods; the best of widths by default, or the paper's.")] = None,
    window_h: Annotated[int | None, Option(help="Width of HCA-GRU-h in methods.")] = None,
    window_both: Annotated[str | None, Option(metavar="X,H", help="Widths of the complete network in methods and attention.")] = None,
    settings: Annotated[
        list[str] | None,
        Option(
            "--set", metavar="KEY=VALUE", help="d, learning_rate or l2; in contest and ablation any setting of the networks of mini-batches. May be repeated."
        ),
    ] = None,
    titles: Annotated[list[str] | None, Option(metavar="NAME=FILE", help="Item names of a raw log. May be repeated.")] = None,
    min_user_events: Annotated[int | None, Option(help="Of raw logs, leave out users with fewer events.")] = None,
    max_user_events: Annotated[int | None, Option(help="Of raw logs, leave out users with more events.")] = None,
    user: Annotated[str | None, Option(help="The user whose attention is shown; the first with full windows by default.")] = None,
    workers: Annotated[int | None, Option(help="Runs at once; one for each core by default, and of those that share a GPU eight.")] = None,
    device: Annotated[str, Option(help="Of contest and ablation: what computes mini-batches, auto, cpu or cuda.")] = "auto",
    methods: Annotated[list[str] | None, Option(metavar="METHOD", help="Of contest and ablation: do this method alone. May be repeated.")] = None,
    minutes: Annotated[float | None, Option(help="Of contest and ablation: end after so long, at a checkpoint; the same command goes on.")] = None,
    merge: Annotated[
        list[Path] | None,
        Option(metavar="FOLDER", help="Of contest and ablation: join the records of another folder of results, and run nothing. May be repeated."),
    ] = None,
    work: Annotated[Path | None, Option(help="Folder for prepared data, checkpoints and figures per user; RESULTS/work by default.")] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Print the plan with hours, memory and disk, and run nothing; raw logs are prepared for it.")] = False,
    json: Annotated[str | None, Option(metavar="FILE", help="Write the tidy rows as JSON to a file, or to standard output with '-'.")] = None,
) -> None:
    """Do the paper's experiments, the contest or the ablation, and write a report; a killed or stopped one goes on with the same command."""
    from hcarec.cli.experiment_view import Grid, show_plan, show_results
    from hcarec.experiments.data_sets import prepare_all
    from hcarec.experiments.report import write_report
    from hcarec.experiments.results import Results
    from hcarec.experiments.settings import NAMES, Settings
    from hcarec.experiments.study import Stopped, Study
    from hcarec.experiments.trials.study import NAMES as TRIALS

    known = (*NAMES, *TRIALS)
    if name not in known:
        raise ConfigError(f"experiment '{name}' is not known: give one of {', '.join(known)}{nearest(name, known)}")
    _check_options(context, name, PAPER_ONLY if name in TRIALS else TRIALS_ONLY)
    if not data and not merge:
        raise ConfigError("no data set given: add one, as in --data shop=log.csv, or --data taobao=user_bought_history.txt for the paper's own")
    if workers is not None and workers < 1:
        raise ConfigError(f"workers is {workers}: give a whole number of at least 1")
    filters = {key: value for key, value in (("min_user_events", min_user_events), ("max_user_events", max_user_events)) if value is not None}
    numbers = {key: value for key, value in (("epochs", epochs), ("runs", runs)) if value is not None}
    if name in TRIALS:
        from hcarec.cli.experiment_trials import run_trials
        from hcarec.experiments.trials.settings import TrialSettings

        changes = parse_settings(settings or [])
        asked = TrialSettings(first_seed=first_seed, device=device, methods=tuple(methods or ()), changes=changes, **numbers)
        sources = _pairs("--data", data or [])
        return run_trials(name, sources, out, asked, filters, workers=workers, work=work, minutes=minutes, merged=merge or [], dry_run=dry_run, json=json)
    own = Settings(
        **numbers, first_seed=first_seed, widths=_numbers("--widths", widths), ks=_numbers("-k", k), selection=selection,
        window_x=window_x, window_h=window_h, window_both=_pair(window_both), **_settings(settings or []),
    )  # fmt: skip
    results = Results(out, first_seed, work)
    with bar("preparing") as progress:
        prepared = prepare_all(_pairs("--data", data or []), results, _pairs("--titles", titles or []), progress, note=not dry_run, **filters)
    study = Study(prepared, results, own, workers, user=user)
    if dry_run:
        return show_plan(name, study)
    try:
        with Grid(results) as study.told:
            study.run(name)
    except Stopped as stopped:
        write_report(results, own)
        console(stderr=True).print(f"{stopped}")
        raise Exit(130) from None
    written = write_report(results, own)
    if json is not None:
        emit_json(json, study.tidy(name).to_dicts())
    if json != "-":
        show_results(name, study, written)


def _check_options(context: Context, name: str, foreign: tuple[str, ...]) -> None:
    """Refuse options that an experiment does not have."""
    for option in foreign:
        source = context.get_parameter_source(option)
        if source is not None and source.name == "COMMANDLINE":
            raise ConfigError(f"--{option.replace('_', '-')} means nothing to the experiment '{name}': leave it out")


def _numbers(option: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        raise ConfigError(f"{option} is '{text}': give whole numbers with commas between, as in 2,3,4,5") from None


def _pair(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    parts = text.split(",")
    if len(parts) != 2 or not all(part.strip().isdigit() for part in parts):
        raise ConfigError(f"--window-both is '{text}': give both widths with a comma between, as in 5,5")
    return int(parts[0]), int(parts[1])


def _pairs(option: str, given: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise ConfigError(f"{option} is '{text}': write it as NAME=FILE, as in {option} shop=log.csv")
        if name in found:
            raise ConfigError(f"{option} gives '{name}' twice: each data set needs a name of its own")
        found[name] = value
    return found


def _settings(given: list[str]) -> dict[str, Any]:
    parsed = parse_settings(given)
    known = ("d", "learning_rate", "l2")
    for name in parsed:
        if name not in known:
            raise ConfigError(f"there is no setting '{name}' of experiments: the settings are {', '.join(known)}{nearest(name, known)}")
    return parsed
