"""`hcarec recommend`: what comes next, for a history, a user or everybody."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from hcarec.cli.console import console, emit_json, working
from hcarec.errors import ConfigError

if TYPE_CHECKING:
    from hcarec.models import Model
    from hcarec.models.base import Recommendation
    from hcarec.sequences import Sequences

NAMED = 100
"""Skipped items that are named one by one."""


def recommend(
    model: Annotated[Path, Argument(metavar="MODEL", help="Folder made by 'hcarec train'.")],
    history: Annotated[str | None, Option(metavar="ID,ID,..", help="Items so far, oldest first; or a JSON list, for ids that hold commas.")] = None,
    user: Annotated[str | None, Option(metavar="ID", help="A user of the data; the user's whole log is the history.")] = None,
    all_users: Annotated[bool, Option("--all-users", help="Recommend for every user of the data, into the file -o.")] = False,
    similar: Annotated[str | None, Option(metavar="ITEM", help="Instead, show the items most like this one.")] = None,
    data: Annotated[Path | None, Option(metavar="DATA", help="Where users are read from; by default the data that the model notes.")] = None,
    allow_mismatch: Annotated[bool, Option("--allow-mismatch", help="Go on with --data of whose items the model knows less than half.")] = False,
    out: Annotated[Path | None, Option("--out", "-o", metavar="FILE", help="File for --all-users: .parquet, .csv or .jsonl.")] = None,
    k: Annotated[int, Option("-k", help="How many items.")] = 10,
    hide_seen: Annotated[bool | None, Option("--hide-seen/--keep-seen", help="Leave out items of the history, or not; by default the model's rule.")] = None,
    allow: Annotated[str | None, Option(metavar="FILE|IDS", help="Recommend only these: a file with an id a line, or ids as for --history.")] = None,
    deny: Annotated[str | None, Option(metavar="FILE|IDS", help="Never recommend these.")] = None,
    threads: Annotated[int | None, Option(help="Threads; all cores by default.")] = None,
    json: Annotated[str | None, Option(metavar="FILE", help="Write the list as JSON to a file, or to standard output with '-'.")] = None,
) -> None:
    """Recommend what comes next: for a history, a user, or all users into a file."""
    given = [name for name, value in (("--history", history), ("--user", user), ("--similar", similar)) if value is not None] + ["--all-users"] * all_users
    if len(given) != 1:
        raise ConfigError(f"{' and '.join(given) if given else 'nothing'} given: give exactly one of --history, --user, --all-users and --similar")
    if all_users and (out is None or json is not None):
        raise ConfigError("--all-users writes a file and no JSON: give -o FILE that ends in .parquet, .csv or .jsonl")
    if out is not None and not all_users:
        raise ConfigError("-o goes with --all-users: for one list use --json FILE")
    check_threads(threads)
    with working("loading"):
        from hcarec.models import load
        from hcarec.models.base import check_k
        from hcarec.recommendation import recommend as recommend_after
        from hcarec.recommendation import recommend_user

        check_k(k)
        loaded = load(model)
    rules: dict[str, Any] = {"hide_seen": hide_seen, "allow": id_list(loaded, "--allow", allow), "deny": id_list(loaded, "--deny", deny) or ()}
    if similar is not None:
        if hide_seen is not None or rules["allow"] is not None or rules["deny"]:
            raise ConfigError("--similar shows the nearest items whatever they are: leave out --hide-seen, --keep-seen, --allow and --deny")
        return show(loaded, loaded.similar_items(similar, k), json, f"most like {label(loaded, similar)}")
    if all_users:
        assert out is not None
        return _everybody(loaded, users_data(loaded, data, allow_mismatch), out, k, rules | {"threads": threads})
    source = users_data(loaded, data, allow_mismatch) if user is not None else None
    past = history_ids(loaded, history, user, source)
    if user is not None and source is not None:
        found = recommend_user(loaded, source, user, k, threads=threads, **rules)
    else:
        found = recommend_after(loaded, past, k, threads=threads, **rules)
    known = [item for item in past if item in loaded.item_ids]
    basis = f"after {_summary(loaded, known)}" if known else "without a known history" if past else "without a history"
    show(loaded, found, json, f"{basis}; {seen_rule(loaded, hide_seen)}")


def users_data(model: Model, path: Path | None, allow_mismatch: bool) -> Sequences:
    """Open the data that users are read from; say how many of its items the model knows where it is not the data it was trained on."""
    from hcarec.catalogs import overlap
    from hcarec.recommendation import is_trained_on, open_data

    data = open_data(model, path, allow_mismatch=allow_mismatch)
    if not is_trained_on(model, data):
        print(f"hcarec: {overlap(model, data)}", file=sys.stderr)
    return data


def _everybody(model: Model, data: Sequences, out: Path, k: int, rules: dict[str, Any]) -> None:
    from hcarec.recommendation import recommend_all

    with _users_done() as progress:
        written = recommend_all(model, data, out, k, progress=progress, **rules)
    popular = f"; {written.popular:,} of them got the popular items" if written.popular else ""
    rule = seen_rule(model, rules["hide_seen"])
    console().print(f"{written.rows:,} rows for {written.users:,} users written to {out}{popular}; {rule}", markup=False)


def seen_rule(model: Model, asked: bool | None) -> str:
    """Say whether items of the history were left out, and why."""
    hidden = model.hide_seen if asked is None else asked
    return f"seen items {'hidden' if hidden else 'kept'}, {'as the model was trained' if asked is None else 'as asked for'}"


# -- what is given ---------------------------------------------------------------------------------------------------


def history_ids(model: Model, history: str | None, user: str | None, data: Sequences | None) -> list[str | int]:
    """Return the ids of a history, given or a user's; those that the model does not know are named on standard error."""
    from hcarec.recommendation import history_of, unknown_items

    ids: list[str | int] = history_of(data, user) if user is not None and data is not None else list(parse_ids(history or ""))
    if unknown := unknown_items(model, ids):
        _warn("skipped, not in the model's catalogue", unknown)
    return ids


def parse_ids(text: str) -> list[str]:
    """Read ids separated by commas, or as a JSON list."""
    import json

    if text.lstrip().startswith("["):
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            values = None  # an id may begin with a bracket
        if isinstance(values, list) and all(isinstance(value, (str, int)) for value in values):
            return [str(value) for value in values]
    return [stripped for part in text.split(",") if (stripped := part.strip())]


def id_list(model: Model, option: str, given: str | None) -> list[str] | None:
    """Read an allow-list or a deny-list: a file with an id a line, or ids."""
    from hcarec.recommendation import unknown_items

    if given is None:
        return None
    ids = _lines(Path(given), option) if is_file(given) else parse_ids(given)
    unknown = unknown_items(model, ids)
    # A list that names nothing known is most likely a file that is not there: to go on would allow what was to be denied.
    if len(unknown) == len(dict.fromkeys(ids)) and (option == "--allow" or not is_file(given)):
        raise ConfigError(f"{option} '{given}' names no item of the catalogue: give a file with an id a line, or ids separated by commas")
    if unknown:
        _warn(f"{option}: not in the model's catalogue", unknown)
    return ids


def is_file(given: str) -> bool:
    """Say whether a text is the path of a file; ids may be longer than any path."""
    try:
        return Path(given).is_file()
    except (OSError, ValueError):
        return False


def _lines(path: Path, option: str) -> list[str]:
    try:
        return [line for text in path.read_text(encoding="utf-8-sig").split("\n") if (line := text.strip())]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{option} '{path}' cannot be read as text ({error}): give a UTF-8 file with an id a line") from None


def check_threads(threads: int | None) -> None:
    """Refuse a number of threads that makes no sense."""
    if threads is not None and threads < 1:
        raise ConfigError(f"--threads is {threads}: give 1 or more, or leave it out for all cores")


def _warn(what: str, items: Sequence[str]) -> None:
    more = f" and {len(items) - NAMED:,} more" if len(items) > NAMED else ""
    print(f"hcarec: {what}: {', '.join(printable(item) for item in items[:NAMED])}{more}", file=sys.stderr)


# -- what is shown -----------------------------------------------------------------------------------------------------


def show(model: Model, found: Sequence[Recommendation], json: str | None, why: str) -> None:
    """Print a list of recommendations as a table, or give it as JSON."""
    if json is not None:
        emit_json(json, [as_json(one) for one in found])
    if json == "-":
        return
    from rich.table import Table
    from rich.text import Text

    shown = console()
    shown.print(f"{model.config.title}, {why}", style="bold", markup=False)
    if not found:
        shown.print("nothing is left to recommend")
        return
    named = any(one.title for one in found)
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("rank", justify="right")
    for heading in ("item", "title") if named else ("item",):
        table.add_column(heading, overflow="ellipsis", no_wrap=True)
    table.add_column("score", justify="right")
    table.add_column("basis")
    for place, one in enumerate(found, 1):
        title = printable(one.title or "")
        table.add_row(str(place), *map(Text, (printable(str(one.item)), title)[: 1 + named]), score_text(one), one.basis)
    shown.print(table)


def as_json(one: Recommendation) -> dict[str, Any]:
    """Return a recommendation as JSON has it: the id in the type that it had in the log, the title null where it is not known."""
    return {"item": one.item, "title": one.title, "score": one.score, "basis": one.basis}


def score_text(one: Recommendation) -> str:
    """Write a score: counts as counts, others to four places."""
    return f"{one.score:,.0f}" if one.basis == "popular" else f"{one.score:.4f}"


def label(model: Model, item: str | int) -> str:
    """Return an item's name, or its id where it has none."""
    index = model.item_ids.find(item)
    return printable(model.label(index) if index >= 0 else str(item))


def printable(text: str) -> str:
    """Replace what could move the cursor or break the line."""
    return "".join(character if character.isprintable() else " " for character in text)


def _summary(model: Model, history: Sequence[str | int]) -> str:
    last = [label(model, item) for item in history[-3:]]
    before = f"{len(history) - 3:,} more, " if len(history) > 3 else ""
    return f"{len(history):,} event{'s' * (len(history) != 1)} ({before}{', '.join(last)})"


@contextmanager
def _users_done() -> Iterator[Callable[[int, int | None], None] | None]:
    """Show how many users are done, on a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as shown:
        task = shown.add_task("users", total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)
