"""`hcarec prepare`: from a raw log to a prepared data set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from hcarec.cli.console import bar, console, emit_json
from hcarec.config import parse_settings
from hcarec.errors import ConfigError

if TYPE_CHECKING:
    from hcarec.sequences import Sequences


def prepare(
    source: Annotated[str | None, Argument(metavar="INPUT", help="A file, a folder, a glob, or the name of a known data set (see --list).")] = None,
    out: Annotated[Path | None, Option("--out", "-o", metavar="DATA", help="Folder to write; an older prepared set there is replaced.")] = None,
    list_known: Annotated[bool, Option("--list", help="List the known data sets and exit.")] = False,
    raw: Annotated[Path | None, Option(help="Your own copy of a known data set's file.")] = None,
    titles: Annotated[Path | None, Option(help="File of item names, with a column of item ids and one of titles; other columns are kept.")] = None,
    user_col: Annotated[str | None, Option(help="Column of the user (a number from 1 without a header).")] = None,
    item_col: Annotated[str | None, Option(help="Column of the item.")] = None,
    time_col: Annotated[str | None, Option(help="Column of the time; without one, file order counts.")] = None,
    event_col: Annotated[str | None, Option(help="Column of the event type.")] = None,
    event: Annotated[list[str] | None, Option(help="Keep only this event type; may be repeated.")] = None,
    delimiter: Annotated[str | None, Option(help="What separates fields, if not found by itself.")] = None,
    header: Annotated[bool | None, Option("--header/--no-header", help="Whether the first row names the columns.")] = None,
    quotes: Annotated[bool | None, Option("--quotes/--no-quotes", help="Whether fields may stand in double quotes.")] = None,
    encoding: Annotated[str | None, Option(help="Text encoding, such as latin-1.")] = None,
    time_format: Annotated[str | None, Option(help="strptime format of the time, such as '%d.%m.%Y %H:%M'.")] = None,
    time_unit: Annotated[str | None, Option(help="Unit of a numeric time: s, ms, us or ns; judged by its size by default.")] = None,
    min_user_events: Annotated[int | None, Option(help="Leave out users with fewer events.")] = None,
    max_user_events: Annotated[int | None, Option(help="Leave out users with more events.")] = None,
    min_item_events: Annotated[int | None, Option(help="Leave out items with fewer events; with --min-user-events repeated until both hold.")] = None,
    repeats: Annotated[str | None, Option(help="keep, consecutive (of a run keep the first) or once (each item once per user).")] = None,
    since: Annotated[str | None, Option(help="Leave out events before this date or time stamp.")] = None,
    until: Annotated[str | None, Option(help="Leave out events at or after this date or time stamp.")] = None,
    session_gap: Annotated[str | None, Option(help="Cut users into visits after a pause longer than this, such as 30m.")] = None,
    knob: Annotated[list[str] | None, Option("--set", metavar="KEY=VALUE", help="Knob of the synthetic log, such as users=5000; may be repeated.")] = None,
    strict: Annotated[bool, Option("--strict", help="Refuse the first unusable row instead of setting it aside.")] = False,
    json: Annotated[str | None, Option(metavar="FILE", help="Write the report as JSON to a file, or to standard output with '-'.")] = None,
) -> None:
    """Read a log, clean it, and write it as sequences; every row is accounted for."""
    if list_known:
        return _list(json)
    if source is None:
        raise ConfigError("no INPUT given: expected a file, a folder, a glob or a known name, as in 'hcarec prepare log.csv -o data'")
    if out is None:
        raise ConfigError(f"no output folder given: add -o DATA, as in 'hcarec prepare {source} -o data'")
    given = {
        "user_col": user_col,
        "item_col": item_col,
        "time_col": time_col,
        "event_col": event_col,
        "events": tuple(event) if event else None,
        "delimiter": delimiter.replace("\\t", "\t") if delimiter else None,
        "header": header,
        "quotes": quotes,
        "encoding": encoding,
        "time_format": time_format,
        "time_unit": time_unit,
        "min_user_events": min_user_events,
        "max_user_events": max_user_events,
        "min_item_events": min_item_events,
        "repeats": repeats,
        "since": since,
        "until": until,
        "session_gap": session_gap,
    }
    settings = {name: value for name, value in given.items() if value is not None} | parse_settings(knob or [])
    data = run(source, out, raw=raw, titles=titles, strict=strict, **settings)
    if json is not None:
        emit_json(json, as_json(data))
    if json != "-":
        show(data, out)


def run(source: str, out: Path, **settings: Any) -> Sequences:
    """Prepare with progress bars."""
    with bar("preparing") as shown:
        shown.named("reading", 0, None)
        from hcarec.data.prepare import prepare as prepare_data

        return prepare_data(source, out, progress=shown, download_progress=shown.named, **settings)


def as_json(data: Sequences) -> dict[str, Any]:
    """Return the report of a prepared set."""
    head = {"users": data.n_users, "items": data.n_items, "events": data.n_events, "fingerprint": data.fingerprint, "time_unit": data.time_unit}
    return head | {name: data.about[name] for name in ("source", "columns", "filters", "report") if name in data.about}


def show(data: Sequences, out: Path) -> None:
    """Print what was kept, what was dropped and why."""
    from rich.table import Table

    from hcarec.data.times import show as show_time

    shown, about = console(), data.about
    _show_source(shown, about.get("source", {}))
    report = about.get("report")
    if report:
        table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
        table.add_column(justify="right")
        table.add_column()
        table.add_row(f"{report['rows']:,}", "rows in")
        for entry in report["dropped"].values():
            also = ", ".join(f"{entry[what]:,} {what}" for what in ("users", "items") if entry[what])
            table.add_row(f"- {entry['events']:,}", f"dropped: {entry['what']}" + (f" ({also})" if also else ""))
        for reason, count in report["quarantined"]["reasons"].items():
            table.add_row(f"- {count:,}", f"quarantined: {reason}")
        table.add_row(f"{report['kept']:,}", "events kept", style="bold")
        shown.print(table)
    events = "" if report else f", {data.n_events:,} events"
    shown.print(f"{data.n_users:,} users, {data.n_items:,} items{events}" + _known_of_items(data))
    if data.times is not None:
        ties = f"; {report['ties']['share']:.1%} of events share their time with the one before, these keep file order" if report else ""
        shown.print(f"from {show_time(data.times.min(), data.time_unit)} to {show_time(data.times.max(), data.time_unit)}{ties}")
    else:
        shown.print("no time column: file order is the order of events")
    if report and report["quarantined"]["rows"]:
        shown.print(f"the quarantined rows, with row number and reason, are in {out / 'quarantine.csv'}")
    if report and report["rounds"] > 2:
        shown.print(f"filters were repeated until nothing changed ({report['rounds']} rounds)")
    if report and report["empty_files"]:
        shown.print(f"{len(report['empty_files'])} empty files passed over")
    if about.get("columns"):
        shown.print("columns: " + ", ".join(f"{role} = {name}" for role, name in about["columns"].items()))
    shown.print(f"written to {out} (fingerprint {data.fingerprint[:12]})")


def _known_of_items(data: Sequences) -> str:
    names = ["item names"] if data.titles is not None else []
    return f", with {', '.join([*names, *data.fields])}" if names or data.fields else ""


def _show_source(shown: Any, source: dict[str, Any]) -> None:
    if "licence" not in source:
        return
    shown.print(source.get("title", source.get("name")), style="bold")
    shown.print(f"licence: {source['licence']}")
    for what in ("terms", "citation"):
        if source.get(what):
            shown.print(f"{what}: {source[what]}")
    if source.get("warning"):
        shown.print(source["warning"], style="bold")
    if source.get("mirror"):
        shown.print(f"from {source['mirror']}" + (", checked by SHA-256" if source.get("sha256_status") == "verified" else ""))


def _list(json: str | None) -> None:
    from hcarec.data import sources

    known = sources.known()
    if json is not None:
        emit_json(json, [{"name": one.name, "title": one.title, "size": one.size, "licence": one.licence, "homepage": one.homepage,
                          "fetched": bool(one.mirrors)} for one in known.values()])  # fmt: skip
    if json == "-":
        return
    shown = console()
    for one in known.values():
        how = "made here" if one.generated else "fetched and checked" if one.mirrors else "read from your own copy (--raw FILE)"
        shown.print(f"{one.name}  {one.title}", style="bold")
        for line in (one.size, f"{one.licence}; {how}"):
            shown.print(f"    {line}", style="dim")
