"""`hcarec explain`: where the attention looked, and what each event did to the score."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from hcarec.cli.console import console, emit_json, working
from hcarec.errors import ConfigError


def explain(
    model: Annotated[Path, Argument(metavar="MODEL", help="Folder made by 'hcarec train'.")],
    history: Annotated[str | None, Option(metavar="ID,ID,..", help="Items so far, oldest first; or a JSON list, for ids that hold commas.")] = None,
    user: Annotated[str | None, Option(metavar="ID", help="A user of the data; the user's whole log is the history.")] = None,
    data: Annotated[Path | None, Option(metavar="DATA", help="Where users are read from; by default the data that the model notes.")] = None,
    allow_mismatch: Annotated[bool, Option("--allow-mismatch", help="Go on with --data of whose items the model knows less than half.")] = False,
    item: Annotated[str | None, Option(metavar="ID", help="The item to explain; by default the best recommendation.")] = None,
    plot: Annotated[Path | None, Option(metavar="FILE", help="Draw weights and effects with item names, PNG or SVG.")] = None,
    json: Annotated[str | None, Option(metavar="FILE", help="Write everything as JSON to a file, or to standard output with '-'.")] = None,
) -> None:
    """Show the attention weights behind a recommendation, and what leaving each event out does to its score."""
    if (history is None) == (user is None):
        raise ConfigError(f"{'neither' if user is None else 'both'} of --history and --user given: give one of them")
    with working("loading"):
        from hcarec.cli.recommend import history_ids, users_data
        from hcarec.explanation import explain as explain_after
        from hcarec.models import load

        loaded = load(model)
        past = history_ids(loaded, history, user, users_data(loaded, data, allow_mismatch) if user is not None else None)
        found = explain_after(loaded, past, item)
    if json is not None:
        emit_json(json, found.as_dict())
    if plot is not None:
        from hcarec.plots import attention

        try:
            attention(found, plot)
        except OSError as error:
            raise ConfigError(f"cannot write '{plot}': {error.strerror}; give another file with --plot") from None
    if json != "-":
        from hcarec.cli.explain_view import render

        shown = console()
        render(found, shown)
        if plot is not None:
            shown.print(f"drawn in {plot}", markup=False)
