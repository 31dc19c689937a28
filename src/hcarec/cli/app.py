"""The commands, put together; whatever is heavy is imported inside them."""

from __future__ import annotations

import typer

from hcarec.cli.compare import compare
from hcarec.cli.demo import demo
from hcarec.cli.doctor import doctor
from hcarec.cli.evaluate import evaluate
from hcarec.cli.experiment import experiment
from hcarec.cli.explain import explain
from hcarec.cli.info import info
from hcarec.cli.inspect import inspect
from hcarec.cli.prepare import prepare
from hcarec.cli.recommend import recommend
from hcarec.cli.serve import serve
from hcarec.cli.train import train

app = typer.Typer(
    name="hcarec",
    help="Next-item recommendation from event logs, built around HCA-GRU.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (prepare, inspect, train, evaluate, compare, recommend, explain, serve, experiment, info, doctor, demo):
    app.command()(command)


def _show_version(asked: bool) -> None:
    if asked:
        from hcarec import __version__

        typer.echo(f"hcarec {__version__}")
        raise typer.Exit


@app.callback()
def options(version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Show the version and exit.")) -> None:
    pass
