"""Write docs/commands.md from the command itself, so that it is always true.

python docs/make_commands.py [--check]
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

from typer.main import get_command

from hcarec.cli.app import app

TARGET = Path(__file__).parent / "commands.md"
HEAD = """# Commands

Written by `make docs` from the command itself. Exit code 0 means done, 2 a mistake of the user (one line on standard error says which), 130 stopped by Ctrl-C.
Progress is shown on a terminal only; `--json -` gives a program what a person sees.

`hcarec --version` tells the version, `python -m hcarec` is the same command. `hcarec --install-completion` teaches your shell (bash, zsh, fish, PowerShell) to
complete commands and options; `hcarec --show-completion` prints what it would add.
"""


def commands() -> dict[str, Any]:
    """Return every command by name."""
    return dict(get_command(app).commands)  # type: ignore[attr-defined]


def page() -> str:
    """Return the whole page."""
    return HEAD + "".join(section(name, command) for name, command in commands().items())


def section(name: str, command: Any) -> str:
    """Return the part of one command."""
    arguments = " ".join((parameter.metavar or parameter.name.upper()) for parameter in command.params if parameter.param_type_name == "argument")
    lines = [f"\n## hcarec {name}\n", f"\n    hcarec {name} {arguments}".rstrip() + " [OPTIONS]\n" if arguments else f"\n    hcarec {name} [OPTIONS]\n"]
    lines.append(f"\n{inspect.cleandoc(command.help or '')}\n\n")
    for parameter in command.params:
        if parameter.name != "help":
            lines.append(f"- {label(parameter)}: {parameter.help}{default(parameter)}\n")
    return "".join(lines)


def label(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{(parameter.metavar or parameter.name.upper())}`"
    names = [*parameter.opts, *parameter.secondary_opts]
    return ", ".join(f"`{name}`" for name in sorted(names, key=len))


def default(parameter: Any) -> str:
    value = parameter.default() if callable(parameter.default) else parameter.default
    return "" if value in (None, False, (), []) or parameter.required else f" Default: `{value}`."


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(0 if TARGET.read_text() == page() else "docs/commands.md is not up to date: run make docs")
    TARGET.write_text(page())
