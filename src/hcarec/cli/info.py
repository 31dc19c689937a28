"""`hcarec info`: what a model folder holds, in words."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option

from hcarec.cli.console import console, emit_json
from hcarec.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from hcarec.models import Model

LETTERS = ("P", "X", "U", "V", "W", "b", "Q_x", "r_x", "Q_h", "r_h", "E", "F")
"""Parameters in the paper's order."""


def info(
    model: Annotated[Path, Argument(metavar="MODEL", help="Folder made by 'hcarec train'.")],
    json: Annotated[str | None, Option(metavar="FILE", help="Write everything as JSON to a file, or to standard output with '-'.")] = None,
) -> None:
    """Say what a model folder holds: the model, its data, protocol, metrics and size, and whether its files are intact; a damaged one exits with 2."""
    found = look(model)
    if json is not None:
        emit_json(json, found)
    if json != "-":
        _show(model, found)
    if not found.get("intact", True):
        raise Exit(2)


def _show(model: Path, found: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    shown = console()
    shown.print(Text(f"{model}: {found['title']}", style="bold"))
    table = Table.grid(padding=(0, 3, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for name, text in words(found):
        table.add_row(Text(name, style="dim"), Text(text))
    shown.print(table)


def look(folder: Path) -> dict[str, Any]:
    """Return what a folder holds as plain values; a damaged file is reported, not refused."""
    from hcarec import artefact
    from hcarec.models import load

    if not (folder / artefact.MANIFEST).exists() and (folder / artefact.CHECKPOINT).is_dir():
        return _unfinished(folder)
    manifest = artefact.read_manifest(folder)
    files = {name: _state(folder / name, digest) for name, digest in manifest["files"].items()}
    intact = all(file["state"] == "intact" for file in files.values())
    kept = {name: value for name, value in manifest.items() if name not in ("format", "files", "integer_ids")}
    reason = None
    sizes: dict[str, Any] = {}
    if intact:  # only what is whole is opened
        try:
            model = load(folder)
            kept["config"] = model.config.as_dict()
            sizes = {
                "parameters": int(sum(array.size for array in model.tensors.values())),
                "tensors": {name: list(array.shape) for name, array in sorted(model.tensors.items(), key=lambda named: _place(named[0]))},
                "items": len(model.item_ids),
                "titles": model.titles is not None,
                "fields": list(model.fields),
                "users_with_vectors": len(model.user_ids) if model.user_ids is not None else 0,
                "catalog": _fit(model),
            }
        except ModelError as error:
            intact, reason = False, str(error)
    bytes_ = sum(file["bytes"] for file in files.values()) + (folder / artefact.MANIFEST).stat().st_size
    return {"state": "model", "title": str(manifest.get("title")), "intact": intact, "reason": reason, "bytes": bytes_, "files": files, **sizes, **kept}


def _fit(model: Model) -> dict[str, int] | None:
    """Return how many items of the data that the model notes it knows; None where that cannot be opened."""
    from hcarec.catalogs import overlap
    from hcarec.errors import DataError
    from hcarec.sequences import Sequences

    noted = model.about.get("data")
    path = noted.get("path") if isinstance(noted, dict) else None
    try:
        found = overlap(model, Sequences.open(str(path))) if path else None
    except DataError:
        return None
    return None if found is None else {"known": found.known, "items": found.items}


def _place(letter: str) -> tuple[int, str]:
    """Return where a parameter stands: the paper's in its order, then the others by name."""
    return LETTERS.index(letter) if letter in LETTERS else len(LETTERS), letter


def _unfinished(folder: Path) -> dict[str, Any]:
    from hcarec.training import checkpoint

    title = "an unfinished training run, no model yet"
    found = checkpoint.read(folder)
    if found is None:
        return {"state": "unfinished", "title": title}
    return {
        "state": "unfinished",
        "title": title,
        "model": found.run["config"]["model"],
        "config": found.run["config"],
        "data": {"fingerprint": found.run["data"]},
        "epoch": found.epoch,
        "seed": found.run["seed"],
    }


def _state(path: Path, digest: str) -> dict[str, Any]:
    import hashlib

    from hcarec import atomic

    try:
        content = atomic.read_bytes(path)
    except OSError as error:
        return {"state": "missing", "bytes": 0, "reason": error.strerror}
    return {"state": "intact" if hashlib.sha256(content).hexdigest() == digest else "damaged", "bytes": len(content)}


# -- in words ------------------------------------------------------------------------------------------------------------


def words(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what a folder holds as lines of a name and a text."""
    data = _section(found, "data")
    lines = [("settings", ", ".join(f"{name} {value}" for name, value in _settings(found).items()))]
    if data:
        name = f"{data['name']}, " if data.get("name") else ""
        path = f", from {data['path']}" if data.get("path") else ""
        lines.append(("data", f"{name}fingerprint {str(data.get('fingerprint'))[:12]}{path}"))
    if found["state"] == "unfinished":
        return [*lines, ("state", f"stopped in epoch {found.get('epoch', 0)}: go on with 'hcarec train DATA -o MODEL --resume' and the same settings")]
    lines += _protocol(_section(found, "protocol"))
    learns = "epochs" in _settings(found)
    if learns and (chosen := _section(found, "selection")):
        lines.append(("selection", _selection(chosen)))
    if learns and (training := _section(found, "training")):
        early = "" if found.get("finished", True) else "; stopped early"
        parts = {
            "training": "training_seconds",
            "fusing": "fusing_seconds",
            "fine-tuning": "fine_tuning_seconds",
            "evaluation": "evaluation_seconds",
            "yardsticks": "yardstick_seconds",
        }
        listed = ", ".join(f"{training[key]} s {what}" for what, key in parts.items() if training.get(key))
        lines.append(("training", f"{training.get('epochs')} epochs in {training.get('seconds')} s{': ' if listed else ''}{listed}{early}"))
        lines += _counting(training.get("counting"))
        lines += _fine_tuning(training.get("fine_tuning"), _section(found, "metrics"))
    return [*lines, *_figures(found), *_size(found)]


def _counting(chosen: Any) -> list[tuple[str, str]]:
    """Say how strong the counting term is, of a network that has one."""
    from hcarec.training.fusing import words

    with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):  # anybody may have written it
        name, _, text = words(chosen).partition(": ")
        return [(name, text)]
    return []


def _fine_tuning(tuned: Any, metrics: dict[str, Any]) -> list[tuple[str, str]]:
    """Say what the validation events added, of a network that has learned them in the end."""
    from hcarec.training.fine_tuning import words

    with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):  # anybody may have written it
        return [("fine-tuning", words(tuned, metrics))]
    return []


def _figures(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the metrics and what they are held against; of a model trained on everything, those of the evaluated run before."""
    evaluated = _section(found, "evaluated") or found
    before = ", of the run before it was trained on everything" if evaluated is not found else ""
    metrics = {name: value for name, value in _section(evaluated, "metrics").items() if isinstance(value, (int, float))}
    if not metrics:
        return []
    main = [name for name in metrics if name.startswith(("recall@", "map@", "ndcg@")) or name == "auc"]
    lines = [("metrics", ", ".join(f"{name} {metrics[name]:.4f}" for name in main) + before)]
    if yardsticks := _section(evaluated, "yardsticks"):
        from hcarec.training.yardsticks import words

        lines.append(("yardsticks", words(found["title"], metrics, yardsticks)))
    return [*lines, *_fine_tuning(evaluated.get("fine_tuning"), metrics)]


def _section(found: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a part of model.json, which anybody may have written, as an object."""
    part = found.get(name)
    return part if isinstance(part, dict) else {}


def _settings(found: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that mean something to this model."""
    from hcarec.artefact import SCHEMA
    from hcarec.models import stored_settings

    config = dict(_section(found, "config"))
    with contextlib.suppress(ConfigError):  # a model that this version does not know is shown as it is written
        config = {"model": config.get("model"), **stored_settings(config, found.get("schema", SCHEMA))}
    return config | ({"seed": found["seed"]} if "seed" in found else {})


def _protocol(rules: dict[str, Any]) -> list[tuple[str, str]]:
    if not rules:
        return []
    split = _section(rules, "split")
    counts = _section(split, "counts")
    tested = f"{counts['users_evaluated']:,} users tested on {counts['test_items']:,} items" if counts.get("users_evaluated") else "nothing is left to test on"
    seen = f"{rules.get('seen')}, here and wherever the model recommends"
    return [("split", f"{split.get('split')}: {split.get('rule', '')}; {tested}"), ("seen items", seen)]


def _selection(chosen: dict[str, Any]) -> str:
    if not chosen.get("metric"):
        return f"{chosen.get('kind')}: epoch {chosen.get('epoch')}"
    part = "the validation part" if chosen.get("on") == "validation" else "the test part (optimistic)"
    return f"{chosen.get('kind')}: epoch {chosen.get('epoch')}, best in {chosen['metric']} on {part}"


def _size(found: dict[str, Any]) -> list[tuple[str, str]]:
    lines = []
    if "parameters" in found:
        tensors = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in found["tensors"].items())
        lines.append(("parameters", f"{found['parameters']:,} ({tensors})"))
        users = f"; vectors of {found['users_with_vectors']:,} users" if found["users_with_vectors"] else ""
        known = ", ".join(["with names" if found["titles"] else "without names", *found["fields"]])
        lines.append(("catalogue", f"{found['items']:,} items, {known}{users}"))
        if fit := found["catalog"]:
            lines.append(("fit", f"{fit['known']:,} of the {fit['items']:,} items that its data has now are known"))
    lines.append(("made with", ", ".join(f"{name} {version}" for name, version in _section(found, "versions").items())))
    bad = [f"{name} is {file['state']}" for name, file in found["files"].items() if file["state"] != "intact"]
    state = "all intact" if found["intact"] else f"NOT usable: {', '.join(bad) or found['reason']}; train again or restore it"
    return [*lines, ("files", f"{len(found['files']) + 1} files, {found['bytes']:,} bytes, {state}")]
