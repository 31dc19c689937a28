"""The report of the demo: what it found, as one HTML file that loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hcarec.experiments.document import Bullets, Cell, Document, Figure, Paragraph, Section, Table

if TYPE_CHECKING:
    from hcarec.data.inspect import Report
    from hcarec.explanation import Explanation
    from hcarec.models import Model
    from hcarec.models.base import Recommendation

METRICS = ("recall@5", "recall@20", "map@20", "ndcg@20", "auc")
"""The columns of the comparison."""
BARS = ("recall@20", "map@20", "ndcg@20")


def write(path: Path, log: Report, models: Sequence[Model], user: str, best: Sequence[Recommendation], why: Explanation, commands: Sequence[str]) -> Path:
    """Write the report and its figures; return the file to open."""
    from hcarec import atomic, plots
    from hcarec.experiments.html import render

    figures = path.parent / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    plots.length_and_popularity(log, figures / "log.png")
    comparison(models, figures / "comparison.png")
    plots.attention(why, figures / "attention.png")
    sections = [_log(log), _compared(models), _recommended(user, best, why), Section("Every step as a command", [Bullets([f"`{one}`" for one in commands])])]
    lead = f"What hcarec made of {log.name} in one go: the log, four methods compared, and what one user may choose next."
    document = Document("hcarec demo", lead, sections, _facts())
    atomic.write_bytes(path, render(document, figures).encode())
    return path


def comparison(models: Sequence[Model], path: Path) -> None:
    """Draw the metrics of all models as bars side by side."""
    import numpy as np

    from hcarec.experiments.looks import look
    from hcarec.plots import figure

    with figure(path, (8.6, 3.4)) as drawn:
        axes = drawn.subplots(1, 1)
        wide = 0.8 / len(models)
        for n, model in enumerate(models):
            values = [100 * model.about["metrics"][metric] for metric in BARS]
            places = np.arange(len(BARS)) + (n - (len(models) - 1) / 2) * wide
            drawn_bars = axes.bar(places, values, wide * 0.92, color=look(model.config.title).colour, label=model.config.title)
            axes.bar_label(drawn_bars, fmt="%.1f", fontsize=8, padding=2)
        axes.set_xticks(np.arange(len(BARS)), [metric.replace("recall", "Recall").replace("map", "MAP").replace("ndcg", "NDCG") for metric in BARS])
        axes.set_ylabel("percent")
        axes.legend(frameon=False, ncols=len(models), loc="upper center", bbox_to_anchor=(0.5, 1.18))


def _log(report: Report) -> Section:
    found = report.statistics
    row = [Cell(report.name), *(Cell(text) for text in (f"{found.users:,}", f"{found.items:,}", f"{found.events:,}", f"{found.mean_length:.1f}"))]
    table = Table("The log", ("data", "users", "items", "events", "events per user"), [row])
    alt = "Two charts: how many users have how many events, and how popularity falls with rank."
    drawing = Figure("Users and items", "log", "", alt)
    worries = [f"**{one.name}**: {one.text} {one.advice}".strip() for one in report.findings if one.level == "warn"]
    said = [Paragraph("What the health check warns of:"), Bullets(worries)] if worries else [Paragraph("The health check has nothing to warn of.")]
    return Section("The log", [table, drawing, *said])


def _compared(models: Sequence[Model]) -> Section:
    best = {metric: max(model.about["metrics"][metric] for model in models) for metric in METRICS}
    rows = []
    for model in models:
        metrics = model.about["metrics"]
        cells = [Cell(f"{100 * metrics[metric]:.2f}", strong=metrics[metric] == best[metric]) for metric in METRICS]
        rows.append([Cell(model.config.title), *cells, Cell(str(model.about["selection"]["epoch"]) if model.config.trains else "")])
    counts = models[0].about["protocol"]["split"]["counts"]
    size = f"{counts['users_evaluated']:,} users, {counts['test_items']:,} test items, the whole catalogue ranked"
    note = f"Percent. {size}; epochs chosen by validation, one seed, few epochs."
    table = Table("Methods", ("method", *METRICS, "epoch"), rows, note)
    drawing = Figure("Side by side", "comparison", "", "Bars of Recall, MAP and NDCG at 20 for each method.")
    return Section("Methods compared", [table, drawing])


def _recommended(user: str, best: Sequence[Recommendation], why: Explanation) -> Section:
    events = [[Cell(str(one.item)), Cell(one.label), Cell(_number(one.weight)), Cell(f"{one.effect:+.3f}")] for one in why.events]
    note = "Weight: the attention that the event got in all. Effect: how much lower the score of the best recommendation is when the event is left out."
    last = Table("The last events", ("item", "name", "weight", "effect"), events, note)
    listed = [[Cell(str(n)), Cell(str(one.item)), Cell(one.label), Cell(f"{one.score:.3f}")] for n, one in enumerate(best, 1)]
    coming = Table("What may come next", ("rank", "item", "name", "score"), listed)
    alt = "A heat strip of attention weights over the last events, and bars of the measured effect of each."
    drawing = Figure(f"Why {best[0].label}", "attention", f"{why.verdict[:1].upper()}{why.verdict[1:]}.", alt)
    return Section(f"One user: {user}", [coming, last, drawing])


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _facts() -> list[tuple[str, str]]:
    from hcarec.experiments.machine import describe

    found: dict[str, Any] = describe()
    versions = ", ".join(f"{name} {version}" for name, version in {"hcarec": found["hcarec"], "python": found["python"], **found["versions"]}.items())
    return [("machine", f"{found['processor']}, {found['cores']} cores"), ("versions", versions)]
