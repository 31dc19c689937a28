"""The command `hcarec`."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command; a user's mistake is one line and exit code 2."""
    try:
        _run()
    except SystemExit as stop:
        if stop.code == 130:  # Ctrl-C, which typer turns into this
            print("hcarec: stopped", file=sys.stderr)
        raise
    except KeyboardInterrupt:  # before typer was there
        print("hcarec: stopped", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output went away, as in `hcarec .. | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _run() -> None:
    from hcarec.cli.app import app
    from hcarec.compiled_cache import ensure_cache
    from hcarec.errors import HcarecError

    try:
        if said := ensure_cache():  # before anything imports Numba
            print(f"hcarec: {said}", file=sys.stderr)
        app(prog_name="hcarec")
    except HcarecError as error:
        print(f"hcarec: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
