"""`hcarec doctor`: what is installed, what the machine has, and what is missing for what."""

from __future__ import annotations

from typing import Annotated

from typer import Exit, Option

from hcarec.cli.console import console, emit_json


def doctor(
    json: Annotated[str | None, Option(metavar="FILE", help="Write everything as JSON to a file, or to standard output with '-'.")] = None,
) -> None:
    """Say which versions are installed, what the machine has, what is missing for what, and what is kept on disk; exit code 1 where hcarec cannot run."""
    from hcarec.doctor import examine, words

    found = examine()
    if json is not None:
        emit_json(json, found)
    if json != "-":
        shown = console()
        lines = words(found)
        width = max(len(name) for name, _ in lines)
        for name, text in lines:
            shown.print(f"{name:{width}}  {text}")
    if found["missing"]:
        raise Exit(1)
