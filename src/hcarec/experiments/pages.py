"""A document as files, Markdown and HTML beside each other, and the facts that every report begins with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hcarec import atomic
from hcarec.errors import ConfigError
from hcarec.experiments import html, markdown
from hcarec.experiments.document import Document

FIGURES = "figures"
"""The folder of figures, beside the pages."""


def write_document(folder: Path, name: str, document: Document) -> list[Path]:
    """Write NAME.md and NAME.html into a folder whose figures are drawn; return both."""
    texts = {f"{name}.md": markdown.render(document), f"{name}.html": html.render(document, folder / FIGURES)}
    for file, text in texts.items():
        try:
            atomic.write_bytes(folder / file, text.encode())
        except OSError as error:
            raise ConfigError(f"cannot write '{folder / file}': {error.strerror}; the runs are kept") from None
    return [folder / file for file in texts]


def facts(records: Sequence[Mapping[str, Any]], clock: str) -> list[tuple[str, str]]:
    """Return what runs were made with, and how long they took; `clock` says what the hours are."""
    if not records:
        return []
    machines = sorted({f"{r['machine']['processor']}, {r['machine']['cores']} cores, {r['machine']['memory_gib']} GiB" for r in records})
    machines += sorted({r["device"] for r in records if r.get("device", "cpu") != "cpu"})
    versions = sorted({", ".join(f"{name} {value}" for name, value in r["machine"]["versions"].items()) for r in records})
    commits = sorted({r["machine"]["commit"] or f"hcarec {r['machine']['hcarec']}" for r in records})
    hours = sum(record["seconds_here"] for record in records) / 3600
    seeds = sorted({record["seed"] for record in records})
    first = [("runs", f"{len(records)}, seeds {', '.join(map(str, seeds))}"), ("time", f"{hours:.1f} hours {clock}"), ("machine", "; ".join(machines))]
    return [*first, ("versions", "; ".join(versions)), ("commit", ", ".join(commits))]
