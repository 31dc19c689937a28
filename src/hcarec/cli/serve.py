"""`hcarec serve`: recommendations over HTTP that know of each event the moment it happens."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from hcarec.cli.console import console, working
from hcarec.errors import ConfigError, nearest
from hcarec.extras import require

if TYPE_CHECKING:
    from hcarec.serve.server import Settings
    from hcarec.serve.service import Service

LOGS = ("requests", "errors")
PACKAGES = ("httptools", "prometheus_client", "starlette", "uvicorn")
"""What the server cannot do without; uvloop makes it faster where it is there."""


def serve(
    model: Annotated[Path | None, Argument(metavar="MODEL", help="Folder made by 'hcarec train'.", show_default=False)] = None,
    data: Annotated[Path | None, Option(metavar="DATA", help="Start from the histories of a prepared data set; imported into the store once.")] = None,
    store: Annotated[str, Option(metavar="FILE|URL", help="Where events are kept: an SQLite file, or redis://.. for several servers.")] = "hcarec.sqlite",
    host: Annotated[str, Option(help="Address to listen on; one that other machines can reach needs --keys.")] = "127.0.0.1",
    port: Annotated[int, Option(help="Port to listen on; 0 takes a free one.")] = 8080,
    keys: Annotated[Path | None, Option(metavar="FILE", help="File of API keys, of which it holds only hashes; read again when it changes.")] = None,
    make_key: Annotated[str | None, Option(metavar="SCOPES", help="Only make a key for read, write and/or admin, add it to --keys, print it once.")] = None,
    retention: Annotated[str | None, Option(metavar="last=N,days=N", help="Keep only the last N events of a user, those of N days, or both.")] = None,
    allow_mismatch: Annotated[bool, Option("--allow-mismatch", help="Serve a model that knows less than half of the items of --data.")] = False,
    restore: Annotated[Path | None, Option(metavar="FILE", help="Fill the store, which must be empty, from a backup before serving.")] = None,
    beside: Annotated[list[Path] | None, Option(metavar="MODEL", help="Another model, which answers when it is named; may be repeated.")] = None,
    backups: Annotated[Path | None, Option(metavar="FOLDER", help="Where POST /admin/backup writes and POST /admin/restore reads.")] = None,
    rate: Annotated[float | None, Option(help="Requests a second of one key or address; 0 for no limit.")] = None,
    threads: Annotated[int | None, Option(help="Threads for ranking; all cores by default.")] = None,
    index: Annotated[bool, Option("--index", help="Measure the index at start and print its recall; it is exact and always in use.")] = False,
    log: Annotated[str, Option(metavar="requests|errors", help="What is written to standard error, as JSON lines.")] = "requests",
    settings: Annotated[list[str] | None, Option("--set", metavar="KEY=VALUE", help="Any other setting or limit; see docs/serving.md.")] = None,
) -> None:
    """Serve recommendations over HTTP; each event sent counts from the moment it is acknowledged."""
    if make_key is not None:
        return _make_key(keys, make_key)
    if model is None:
        raise ConfigError("no model given: hcarec serve MODEL, a folder made by hcarec train")
    if log not in LOGS:
        raise ConfigError(f"--log '{log}' is not known: give one of {', '.join(LOGS)}{nearest(log, LOGS)}")
    with working("starting"):
        require_server("hcarec serve")
        from hcarec.serve.server import run

        given = {"rate": rate, "threads": threads, **_retention(retention)}
        plan = _plan(
            _settings(settings or []),
            {key: value for key, value in given.items() if value is not None},
            model=model,
            store=store,
            data=data,
            restore=restore,
            host=host,
            port=port,
            keys=keys,
            backups=backups,
            beside=tuple(beside or ()),
            allow_mismatch=allow_mismatch,
            log=log,
        )
        measured = _index(model) if index else None
    run(plan, lambda service, address: _say(service, address, plan, measured))


def require_server(what: str) -> None:
    """Raise ConfigError unless the packages are installed that `hcarec.serve.server` imports, which `what` needs."""
    for package in PACKAGES:
        require(package, what, extra="serve")


def _make_key(path: Path | None, scopes: str) -> None:
    from hcarec.serve.keys import make

    if path is None:
        raise ConfigError("--make-key adds a key to a file: give it with --keys FILE")
    key = make(path, scopes)
    console(stderr=True).print(f"a key for {scopes}; only its hash is kept in {path}, so note it now:")
    console().print(key)


def _plan(settings: dict[str, Any], given: dict[str, Any], **rest: Any) -> Settings:
    """Put together what was given; settings are those of the service and the limits of HTTP, the rest are fields of `Settings`."""
    from hcarec.serve.limits import Limits
    from hcarec.serve.options import ServiceOptions
    from hcarec.serve.server import Settings

    of_limits, of_service = ({field.name for field in dataclasses.fields(kind)} for kind in (Limits, ServiceOptions))
    for name in settings:
        if name not in of_limits | of_service:
            known = sorted(of_limits | of_service)
            raise ConfigError(f"there is no setting '{name}': the settings are {', '.join(known)}{nearest(name, known)}")
    chosen = settings | given
    limits = Limits(**{name: value for name, value in chosen.items() if name in of_limits})
    options = ServiceOptions(**{name: value for name, value in chosen.items() if name in of_service})
    return Settings(**rest, limits=limits, options=options)


def _settings(given: list[str]) -> dict[str, Any]:
    from hcarec.config import parse_settings

    return parse_settings(given)


def _retention(given: str | None) -> dict[str, Any]:
    """Read --retention."""
    if given is None:
        return {}
    from hcarec.serve.kinds import MOST
    from hcarec.serve.options import MOST_DAYS

    most = {"last": MOST, "days": MOST_DAYS}
    kept: dict[str, Any] = {}
    for part in given.split(","):
        name, _, value = part.strip().partition("=")
        number = float(value) if value.replace(".", "", 1).isdigit() and value.isascii() else 0.0
        if not 0 < number <= most.get(name, 0) or (name == "last" and number != int(number)):
            limits = f"at most last={MOST} and days={MOST_DAYS}"
            raise ConfigError(f"--retention '{given}' is not understood: give last=1000, days=365, or last=1000,days=365; {limits}")
        kept[f"retain_{name}"] = int(number) if name == "last" else number
    return kept


# -- what is said at the start -----------------------------------------------------------------------------------------


def _say(service: Service, address: str, plan: Settings, measured: str | None) -> None:
    """Print where the service is, what it serves and what it promises."""
    shown, info = console(), service.model
    shown.print(f"hcarec serves {info.title}, {info.items:,} items (model {info.model}) at {address}", style="bold")
    if service.fit is not None:
        shown.print(f"data: {service.fit}")
    for card in service.models()[1:]:
        shown.print(f"beside it, by name: {card.name}, {card.title} (model {card.model})")
    shown.print(f"store: {_without_password(plan.store)}; {service.durability}")
    shown.print(f"kept: {_kept(plan)}")
    shown.print(_open_to(plan))
    if measured is not None:
        shown.print(measured)
    shown.print("Ctrl-C or SIGTERM stops it; requests under way are finished first")
    shown.file.flush()


def _kept(plan: Settings) -> str:
    last, days = plan.options.retain_last, plan.options.retain_days
    if not plan.options.retains:
        return "all events"
    rules = [] if last is None else [f"the last {last:,} events of a user"]
    rules += [] if days is None else [f"events of the last {days:g} days"]
    return " and of these ".join(rules) + "; a state rebuilt later does not know the others"


def _open_to(plan: Settings) -> str:
    if plan.keys is None:
        return "open to everybody on this machine, without keys; other machines cannot reach it"
    return f"keys: {plan.keys}; open without a key: /healthz, /readyz, /openapi.json and the page itself"


def _index(folder: Path) -> str:
    from hcarec.models import load
    from hcarec.serve.recall import SAMPLE, K, measure

    found = measure(load(folder))
    if not found.screened:
        return "index: none, so small a catalogue is scored whole; that is exact"
    gain = f"{found.speedup:.1f} times as quick as scoring everything" if found.gains else f"a catalogue of {found.items:,} items gains no time by it"
    return f"index: recall@{K} {found.recall:.4f} over {SAMPLE} histories of the model's own vectors; {gain}"


def _without_password(store: str) -> str:
    from urllib.parse import urlsplit

    if "://" not in store:
        return store
    parts = urlsplit(store)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"  # what comes after a question mark may hold a password as well
