"""`hcarec evaluate`: the metrics of a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from hcarec.cli.console import console, emit_json, working


def evaluate(
    model: Annotated[Path, Argument(metavar="MODEL", help="Folder made by 'hcarec train'.")],
    data: Annotated[Path, Argument(metavar="DATA", help="The prepared data set that it was trained on.")],
    hide_seen: Annotated[bool | None, Option("--hide-seen/--keep-seen", help="Hide items of the history, or not; by default as in training.")] = None,
    threads: Annotated[int | None, Option(help="Threads; all cores by default.")] = None,
    out: Annotated[Path | None, Option("--out", "-o", metavar="R.json", help="Write the result, and R.users.parquet with figures per user beside it.")] = None,
    json: Annotated[str | None, Option(metavar="FILE", help="Write the result as JSON to a file, or to standard output with '-'.")] = None,
) -> None:
    """Rank the whole catalogue for every test user and print the metrics, under the model's own split and seen rule."""
    from hcarec.evaluation import evaluate as evaluate_model
    from hcarec.models import load
    from hcarec.sequences import Sequences

    with working("evaluating"):
        result = evaluate_model(load(model), Sequences.open(data), hide_seen=hide_seen, threads=threads)
    if out is not None:
        result.save(out)
    if json is not None:
        emit_json(json, result.as_dict())
    if json != "-":
        from hcarec.cli.evaluate_view import show

        show(result, console())
        if out is not None:
            console().print(f"written to {out}")
