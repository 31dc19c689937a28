"""Fill in the parts of pages that are made from results or from the code: whatever stands between two marks such as

<!-- made: results -->
<!-- end -->

python docs/make_parts.py [--check]
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent
RESULTS = ROOT / "benchmarks" / "results"
MARKED = re.compile(r"(<!-- made: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def pages() -> dict[Path, str]:
    """Return every page that has such parts, as it should be."""
    candidates = [ROOT / "README.md", *sorted(HERE.glob("*.md"))]
    return {path: filled(text) for path in candidates if MARKED.search(text := path.read_text())}


def filled(text: str) -> str:
    """Return a page with its parts made anew."""
    return MARKED.sub(lambda found: f"{found[1]}\n{PARTS[found[2]]().strip()}\n\n{found[3]}", text)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Return a Markdown table whose first columns stand to the left, the others to the right."""
    rule = "|" + "---|" * left + "---:|" * (len(head) - left)
    return "\n".join(["| " + " | ".join(head) + " |", rule, *("| " + " | ".join(row) + " |" for row in rows)])


def made_by(name: str, result: dict[str, Any]) -> str:
    """Say how a result was made."""
    machine = result["machine"]
    return f"`python benchmarks/{name}.py`, commit {machine['commit']}, on {machine['processor']}."


def read(name: str) -> dict[str, Any]:
    """Return what a benchmark found."""
    return json.loads((RESULTS / f"{name}.json").read_text())


# -- results of the experiments ----------------------------------------------------------------------------------------

PLAIN = {"d": 20, "learning_rate": 0.01, "l2": 0.001, "epochs": 100}
"""The paper's settings: runs under others are left out."""


def runs(selection: str, metric: str) -> dict[str, dict[str, list[float]]]:
    """Return a metric of all runs under the paper's settings, by data set and method, a value per seed."""
    from hcarec.experiments.results import Results

    found: dict[str, dict[str, list[float]]] = {}
    for run in Results(HERE / "results").read().values():
        fits = all(run["config"].get(name) == value for name, value in PLAIN.items()) or run["method"] in ("POP", "Random")
        if run["selection"] == selection and fits:
            value = run["best"][metric]["value"] if selection == "best-epoch-on-test" and metric in run.get("best", {}) else run["metrics"][metric]
            found.setdefault(run["data"]["name"], {}).setdefault(run["method"], []).append(value)
    return found


def results() -> str:
    """Compare the methods on all logs, with epochs chosen by validation."""
    methods = ("POP", "BPR", "GRU", "HCA-GRU-x5-h5")
    sizes = json.loads((HERE / "results" / "datasets.json").read_text())
    rows = []
    for name, found in sorted(runs("validation", "ndcg@20").items(), key=lambda one: -sizes[one[0]]["items"]):
        if not all(method in found for method in methods):
            continue
        means = [mean(found[method]) for method in methods]
        figures = [f"**{100 * value:.2f}**" if value == max(means) else f"{100 * value:.2f}" for value in means]
        rows.append((f"`{name}`", f"{sizes[name]['users']:,}", f"{sizes[name]['items']:,}", *figures, str(len(found["GRU"]))))
    return table(("log", "users", "items", *methods, "seeds"), rows)


def widths() -> str:
    """Show NDCG@20 by window on the logs for which all widths were run."""
    found = runs("best-epoch-on-test", "ndcg@20")
    names = [name for name in found if all(f"HCA-GRU-{level}{width}" in found[name] for level in "xh" for width in (2, 3, 4, 5))]
    methods = ("GRU", *(f"HCA-GRU-x{width}" for width in (2, 3, 4, 5)), *(f"HCA-GRU-h{width}" for width in (2, 3, 4, 5)), "HCA-GRU-x5-h5")
    rows = []
    for method in methods:
        cells = [_spread(found[name][method]) if method in found[name] else "" for name in names]
        rows.append((method, *cells))
    return table(("NDCG@20, %", *(f"`{name}`" for name in names)), rows)


def _spread(values: Sequence[float]) -> str:
    low, high = 100 * min(values), 100 * max(values)
    return f"{100 * mean(values):.2f} ({low:.2f} to {high:.2f})" if len(values) > 1 else f"{100 * mean(values):.2f}"


# -- the contest -------------------------------------------------------------------------------------------------------

NO_RECORDS = "The contest has not been run on this version yet."
LEVELS = "The levels: difference in NDCG@10 with its 95% interval over users. *Not shown*: no difference that a test could show, corrected over the logs."


def contest(folder: Path = HERE / "results") -> str:
    """Compare all methods of the contest on its logs, from whatever records there are."""
    from hcarec.experiments.trials import tables
    from hcarec.experiments.trials.contest import names

    report = contested(folder)
    means = contest_means(report)
    if not means:
        return NO_RECORDS
    methods = [name for name in names() if any(name in of_log for of_log in means.values())]
    rows = []
    for log in sorted(means, key=lambda log: (report.rule[log], -report.logs[log]["items"])):
        best = max(means[log].values())
        figures = [_figure(means[log].get(method), best, tables.fraction) for method in methods]
        rows.append((f"`{log}`", f"{report.logs[log]['users']:,}", f"{report.logs[log]['items']:,}", report.rule[log], *figures))
    said = f"NDCG@10, {_seeds(report)}; the best in bold. F: items of the history are hidden; U: they may be listed."
    left_out = " Logs on which only counting was run are left out." if len(means) < len(report.logs) else ""
    return f"{table(('log', 'users', 'items', 'rule', *methods), rows)}\n\n{said}{left_out} {_tested(report)}".strip()


def choosing(folder: Path = HERE / "results") -> str:
    """Say which model is best on which kind of log, and what HCA-GRU gains, from whatever records there are.

    Columns of gains for which there are no records are left out.
    """
    from hcarec.experiments.trials import tables
    from hcarec.experiments.trials.contest import DEFAULT, METHODS

    report = contested(folder)
    if not contest_means(report):
        return NO_RECORDS
    means, models = contest_means(report), {method.name: method.model for method in METHODS}
    counting = ("POP", "Markov", "ItemKNN")
    kinds, gains = [], []
    for log in sorted(means, key=lambda log: (report.rule[log], report.logs[log]["events"] / report.logs[log]["items"])):
        found, size = means[log], report.logs[log]
        best = max(found, key=found.__getitem__)
        others = {name: value for name, value in found.items() if models[name] != models[best]}
        counted = {name: value for name, value in found.items() if name in counting}
        kind = (tables.percent(size["repeats"]), f"{size['mean_length']:.0f}, {size['events'] / size['items']:.0f}")
        leaders = (_best(one, found[best]) for one in ({best: found[best]}, others, counted))
        kinds.append((f"{log}, {report.rule[log]}", *kind, *leaders))
        minutes = [f"{record['run_seconds'] / 60:.0f}, {record['threads']}" for record in report.of(log, DEFAULT)]
        gain = (_gain(report, log, found, "HCA-GRU"), _levels(report, log, found), _gain(report, log, found, DEFAULT), *(minutes or ["-"])[:1])
        gains.append((f"{log}, {report.rule[log]}", *gain))
    head = ("log, rule", "repeats", "events a user, an item", "best", "best other model", "best that counts")
    rules = "What counts: POP, Markov and ItemKNN. F: items of the history are hidden; U: they may be listed."
    said = f"NDCG@10, {_seeds(report)}. Percentages: the share of the best figure that is reached. {rules}"
    levels = "its two levels add to GRU"
    second = ("log, rule", "HCA-GRU over Markov", levels, f"{DEFAULT}, over Markov", "minutes of it; threads")
    known = [place for place in range(len(second)) if any(row[place] != "-" for row in gains)]
    second, gains = tuple(second[place] for place in known), [tuple(row[place] for place in known) for row in gains]
    notes = [LEVELS] if levels in second else []
    cores = next(method.cores for method in METHODS if method.name == DEFAULT)
    if any(record["threads"] < cores for log in means for record in report.of(log, DEFAULT)):
        notes.append(f"Runs on fewer than {cores} threads shared the machine with others: their minutes are more than those of a run alone.")
    words = "\n".join(f"- {line}" for line in report.words())
    parts = (table(head, kinds), said, table(second, gains), " ".join(notes), words, "[The whole contest](results/contest.md), with spreads and tests.")
    return "\n\n".join(part for part in parts if part)


def records(folder: Path = HERE / "results") -> str:
    """Say what the records of contest and ablation hold so far."""
    from hcarec.experiments.trials.contest import names
    from hcarec.experiments.trials.study import trial_results

    report = contested(folder)
    methods = {record["method"] for record in report.deciding}
    if not methods:
        return NO_RECORDS
    *first, last = [f"*{name}*" for name in names() if name in methods]
    listed = f"{', '.join(first)} and {last}" if first else last
    ablated = any(record["method"] not in names() for record in trial_results(folder).read().values())
    nothing = "" if ablated else " No results of the ablation are published yet."
    return f"The records so far hold {listed} on {len(report.logs)} logs; seeds: {report.seeds()}.{nothing}"


def departures(folder: Path = HERE / "results", **settings: Any) -> str:
    """Say what each departure from the paper's network adds, from the ablation's records under some settings."""
    from hcarec.experiments.trials.ablation import INGREDIENTS
    from hcarec.experiments.trials.ablation_report import AblationReport
    from hcarec.experiments.trials.settings import TrialSettings
    from hcarec.experiments.trials.study import TrialStudy, noted_data, trial_results

    results = trial_results(folder)
    report = AblationReport(TrialStudy("ablation", noted_data(results), results, TrialSettings(**settings)))
    tests = {log: of_log for log, of_log in report.tests.items() if of_log}
    if not tests:
        return "The ablation has not been run on this version yet."
    rows = []
    for ingredient in INGREDIENTS:
        without = ", ".join(f"`{name}`" for name in ingredient.without)
        rows.append((ingredient.name, without, *(_added(of_log.get(ingredient.name)) for of_log in tests.values())))
    head = ("taken out", "settings", *(f"{log}, {report.rule[log]}" for log in tests))
    said = "What NDCG@10 loses without it, with its 95% interval over users; *not shown*: no test could show a difference; -: a log's settings lack it."
    return f"{table(head, rows, 2)}\n\n{said}"


def _added(test: dict[str, Any] | None) -> str:
    if test is None:
        return "-"
    shown = "" if test["verdict"] in ("higher", "lower") else ", not shown"
    return f"{test['difference']:+.4f} ({test['low']:+.4f} to {test['high']:+.4f}){shown}"


def contested(folder: Path) -> Any:
    """Return the contest's report of the records in a folder of results."""
    from hcarec.experiments.trials.contest_report import noted_contest
    from hcarec.experiments.trials.study import trial_results

    return noted_contest(trial_results(folder))


def contest_means(report: Any) -> dict[str, dict[str, float]]:
    """Return NDCG@10 under the deciding rule, the mean over seeds, by log and method, of logs on which a network was run."""
    from hcarec.experiments.trials.contest import METHODS

    means: dict[str, dict[str, float]] = {}
    for (log, method), values in report.main("ndcg@10").items():
        means.setdefault(log, {})[method] = mean(values)
    networks = {method.name for method in METHODS if method.modern}
    return {log: found for log, found in means.items() if networks & found.keys()}


def _seeds(report: Any) -> str:
    """Say over how many seeds the figures of methods that have any are means."""
    each = report.seeds()
    return "one seed" if each == "1 each" else f"mean over seeds, {each}"


def _tested(report: Any) -> str:
    """Say on how many logs tests show HCA-GRU above or below others."""
    names = {"Markov": "Markov", "SASRec": "SASRec", "GRU": "GRU, its own recipe without the two levels,"}
    counts = []
    for other, words in names.items():
        verdicts = [test["verdict"] for test in report.tests[other].values()]
        if verdicts:
            counts.append(f"than {words} on {verdicts.count('higher')} and lower on {verdicts.count('lower')} of {len(verdicts)} logs")
    return f"By paired tests HCA-GRU is higher {'; '.join(counts)}." if counts else ""


def _figure(value: float | None, best: float, written: Callable[[float], str]) -> str:
    return "-" if value is None else f"**{written(value)}**" if value == best else written(value)


def _best(values: dict[str, float], best: float) -> str:
    """Name the best of some methods, and its figure or what that is of the best of all."""
    if not values:
        return "-"
    name = max(values, key=values.__getitem__)
    return f"{name} {values[name]:.4f}" if values[name] == best else f"{name}, {values[name] / best:.0%}"


def _gain(report: Any, log: str, found: dict[str, float], method: str) -> str:
    """Write by how much a method is above Markov."""
    if method not in found or not found.get("Markov"):
        return "-"
    test = report.tests["Markov"].get(log) if method == "HCA-GRU" else None
    return f"{found[method] / found['Markov'] - 1:+.1%}" + (", not shown" if test is not None and test["verdict"] == "none shown" else "")


def _levels(report: Any, log: str, found: dict[str, float]) -> str:
    """Write what both levels add to GRU, with the interval where there has been a test."""
    test = report.tests["GRU"].get(log)
    if test is not None:
        words = ", not shown" if test["verdict"] == "none shown" else ""
        return f"{test['difference']:+.4f} ({test['low']:+.4f} to {test['high']:+.4f}){words}"
    return f"{found['HCA-GRU'] - found['GRU']:+.4f}" if {"HCA-GRU", "GRU"} <= found.keys() else "-"


# -- benchmarks --------------------------------------------------------------------------------------------------------


def lags() -> str:
    """Show which windows help at which lag."""
    result = read("windows")
    methods = result["networks"]
    columns = list(next(iter(methods.values())))
    means = {method: {lag: mean(one[lag]) for lag in columns} for method, one in methods.items()}
    best = {lag: max(one[lag] for one in means.values()) for lag in columns}
    rows = [(method, *(f"**{100 * one[lag]:.1f}**" if one[lag] == best[lag] else f"{100 * one[lag]:.1f}" for lag in columns)) for method, one in means.items()]
    size = f"{result['users']:,} users, {result['epochs']} epochs, mean of {result['seeds']} seeds"
    return table(("NDCG@20, %", *(f"lag {lag}" for lag in columns)), rows) + f"\n\n{size}; {made_by('windows', result)}"


MISTAKES = {
    "random split": ("test on a random fifth of each user's events", "test on the last fifth"),
    "future": ("train on what other users did after the test's date", "train on nothing after it"),
    "whole log": ("count popularity on the whole log", "count it on the training part"),
    "tied times": ("order events of one time by item id", "keep the order of the log"),
    "ties by row": ("equal scores: the item that came first in the log wins", "a fixed hash of the id decides"),
    "ties as hits": ("equal scores: the test item wins", "a fixed hash of the id decides"),
    "seen items": ("hide what the user had before", "rank everything"),
    "epoch on test": ("choose the epoch on the test part", "choose it on a validation part"),
    "best seed": ("report the best of the seeds", "report their mean"),
    "sampled": ("rank the next item among 100 drawn items", "rank it among all"),
}
"""Each mistake in words, and what it is compared with."""


def mistakes() -> str:
    """Show what each mistake does to the figure."""
    result = read("mistakes")
    rows, before = [], ""
    for case in result["cases"]:
        wrong, right = mean(case["wrong"]), mean(case["right"])
        times = wrong / right
        change = f"{100 * (times - 1):+.0f}%" if times < 2 else f"× {times:.1f}" if times < 20 else f"× {times:,.0f}"
        what, instead = MISTAKES[case["mistake"]] if case["mistake"] != before else ("", "")
        before = case["mistake"]
        rows.append((what, instead, case["model"], f"{100 * right:.2f}", f"{100 * wrong:.2f}", change))
    head = ("the mistake", "instead", "model", "right", "wrong", "change")
    log = result["data"]
    size = f"`{log['name']}`: {log['users']:,} users, {log['items']:,} items, {log['events']:,} events. NDCG@20 (for sampled ranking NDCG@10), percent"
    return table(head, rows, 3) + f"\n\n{size}, mean of {result['seeds']} seeds where a model has seeds. {made_by('mistakes', result)}"


def sizes() -> str:
    """Show what a service takes."""
    result = read("sizing")
    rows = []
    for one in result["cases"]:
        each = f"{one['store_bytes'] / one['events']:.0f} bytes"
        size = [f"{one[name]:,}" for name in ("users", "events", "items", "d")]
        rows.append((*size, f"{one['store_bytes'] / 1e6:.0f} MB", each, f"{one['model_bytes'] / 1e6:.1f} MB", f"{one['resident_bytes'] / 1e6:.0f} MB"))
    head = ("users", "events", "items", "d", "SQLite store", "an event, states included", "model folder", "memory")
    return table(head, rows, 0) + f"\n\nHCA-GRU-x5-h5, a state for every user. {made_by('sizing', result)}"


def agreement() -> str:
    """Show how far weights agree with effects."""
    result = read("agreement")
    rows = []
    for name, one in result["logs"].items():
        found = one["agreement"]
        shares = [f"{100 * share:.0f}%" for share in one["verdicts"].values()]
        rows.append((f"`{name}`", *(f"{found[kind]['mean']:+.2f}" for kind in ("weights", "recency", "chance")), *shares))
    head = ("log", "weights", "recency", "chance", "agree well", "in part", "little", "the other way")
    tops = []
    for name, one in result["logs"].items():
        share = {kind: f"{100 * found['top_is_top']:.0f}%" for kind, found in one["agreement"].items()}
        tops.append(f"on `{name}` in {share['weights']} of cases (the newest event: {share['recency']}, chance: {100 / one['events']:.0f}%)")
    first = next(iter(result["logs"].values()))
    said = f"{first['model']}, {first['epochs']} epochs, {first['users']} users of each log, {first['events']} events each. {made_by('agreement', result)}"
    return table(head, rows) + f"\n\nThe event with the highest weight is also the one that spoke most for the item {'; '.join(tops)}.\n\n{said}"


def example() -> str:
    """Show one real explanation: the last events, their weights on both levels, and what each did to the score."""
    name, log = next(iter(read("agreement")["logs"].items()))
    one = log["example"]
    a_x, a_h, events = one["a_x"], one["a_h"], one["events"]
    n, rows = len(events), []
    for place, event in enumerate(events):
        back = n - 1 - place
        hidden = f"{a_h[len(a_h) - 1 - back]:.2f}" if back < len(a_h) else ""
        now = f"{a_x[-1][len(a_x[-1]) - 1 - back]:.2f}" if back < len(a_x[-1]) else ""
        label = f"n-{back}" if back else "n"
        rows.append((label, event["title"].capitalize(), now, hidden, f"{event['weight']:.2f}", f"{event['effect']:+.2f}"))
    head = ("step", "item", "a_x at step n", "a_h", "weight in all", "effect on the score")
    said = f"User {one['user']} of `{name}`; {one['model']} recommends *{one['title'].capitalize()}*, score {one['score']:.2f}. {one['verdict'].capitalize()}."
    return f"{said}\n\n{table(head, rows, 2)}"


# -- the code ----------------------------------------------------------------------------------------------------------


def modules() -> str:
    """List the parts of the package with the first sentence of each."""
    source = ROOT / "src" / "hcarec"
    rows = []
    for path in sorted([*source.glob("*.py"), *source.glob("*/__init__.py")]):
        name = path.parent.name + "/" if path.name == "__init__.py" else path.name
        if name in ("hcarec/", "__main__.py"):
            continue
        first = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]
        rows.append((f"`{name}`", first))
    return table(("file or folder", "what it is"), rows, 2)


def settings() -> str:
    """List all settings: those of each model, of each trainer and of a run, with the text that stands under each."""
    from hcarec.models import MODELS
    from hcarec.settings import DEFAULT_PRESET, MODERN, PRESETS, TRAINERS, RunSettings, TrainerSettings

    rows = [row for name, kind in MODELS.items() for row in _settings(f"`{name}`", kind.Network)]
    modern = ", ".join(f"`{name}`" for name, kind in MODELS.items() if PRESETS[MODERN] in kind.trainers)
    rows.append((modern, "`preset`", DEFAULT_PRESET, "The recipe: what the settings are that are not given."))
    rows += _settings("every trainer", TrainerSettings)
    shared = {row[1:] for row in _settings("", TrainerSettings)}
    for name, kind in TRAINERS.items():
        rows += [row for row in _settings(f"`{name}`", kind) if row[1:] not in shared]
    return table(("of", "setting", "default (`--preset paper`)", "what it is"), rows + _settings("a run", RunSettings), 4)


def _settings(of: str, kind: type) -> list[tuple[str, str, str, str]]:
    """Return a row for each setting of a class; one without a text cannot be changed and is left out."""
    texts: dict[str, str | None] = {}
    for base in kind.__mro__[:-1]:
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0].body  # type: ignore[attr-defined]
        for line, after in zip(body, [*body[1:], None], strict=True):
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                said = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                texts.setdefault(line.target.id, str(after.value.value) if said else None)  # type: ignore[union-attr]
    found = [(one.name, _default(one.default), texts.get(one.name)) for one in dataclasses.fields(kind)]
    return [(of, f"`{name}`", default, text) for name, default, text in found if text is not None]


KINDS = {
    "no repeats, short": (0.0, 10.0, 20.0, 200_000),
    "no repeats, long": (0.0, 150.0, 300.0, 1_000_000),
    "no repeats, other": (0.0, 50.0, 100.0, 200_000),
    "repeats, short": (0.3, 10.0, 20.0, 200_000),
    "repeats, other": (0.3, 50.0, 100.0, 200_000),
}
"""A log of each kind that the preset modern tells apart: repeats, mean length, events per item, events."""


def recipe() -> str:
    """List what the preset modern sets on each kind of log, and that which is the same on all of them."""
    from hcarec.training import recipe as rule
    from hcarec.training import sizing
    from hcarec.training.recipe import Log, settings_for

    by_kind = [settings_for("hca-gru", Log(*figures)) for figures in KINDS.values()]
    rows, same = [], []
    for name in dict.fromkeys(name for settings in by_kind for name in settings):
        values = [_default(settings.get(name, "-")) for settings in by_kind]
        if len(set(values)) == 1:
            same.append(f"`{name}` {values[0]}")
        else:
            rows.append((f"`{name}`", *values))
    listed = table(("hca-gru at the size of a GPU", *KINDS), rows)
    rare, large, sampled = rule.RARE_ITEMS["d"], rule.SHORT_LARGE, rule.SAMPLED
    usual, once, once_rare = rule.ALWAYS, rule.ONCE, rule.ONCE_RARE
    smaller = " or ".join(str(d) for d in reversed(sizing.SIZES) if d < rule.LEAST_D)
    bounds = f"""- *Repeats*: at least {rule.FEW_REPEATS:.0%} of the events are of an item that the user had before.
- *Short*: below {rule.SHORT} events a user on average. *Long*: from {rule.LONG} on; in between `length` is {rule.LENGTH}.
- *Rare items*: below {rule.RARE} events an item. There d is {rare}, and where nothing repeats dropout of inputs and outputs
  {once_rare["input_dropout"]:g} and weight decay {once_rare["weight_decay"]:g}. The two columns of short histories assume rare items, the others do not:
  with {rule.RARE} events an item or more, short histories have d {usual["d"]}, and where nothing repeats
  dropout {once["input_dropout"]:g} and weight decay {usual["weight_decay"]:g}.
- *Large*: from {rule.LARGE:,} events on. There batches of short histories hold {large["batch_size"]:,} samples,
  at a learning rate of {large["learning_rate"]:g}.
- *Small*: batches are halved while an epoch has fewer than {rule.STEPS} steps, down to {rule.SMALLEST_BATCH} samples."""
    sizes = ", ".join(map(str, sizing.SIZES))
    needed = ", ".join(f"{epochs} epochs over {batches}" for batches, epochs in sizing.NEEDED_EPOCHS.items())
    fixed = ", ".join(f"{epochs} over {batches}" for batches, epochs in rule.FIXED_EPOCHS.items())
    numbers = f"""- d on a CPU: {sizes}; the largest with which at least {needed} fit into {sizing.BUDGET / 60:.0f} minutes,
  and the run into {sizing.MEMORY_SHARE:.0%} of the memory. At most {rule.MOST_BLOCKS} blocks.
- Where that would be a d below {rule.LEAST_D}: sampled softmax against {sampled["negatives"]:,} items, with dropout
  {sampled["input_dropout"]:g} of inputs and outputs, and the largest d that leaves time for {sizing.NEEDED_SAMPLED} epochs, every second one evaluated.
  A catalog of fewer than {2 * sampled["negatives"]:,} items, twice as many, is scored whole all the same, with d {smaller}.
- Epochs without validation data: {fixed}; with repeats {rule.FIXED_EPOCHS_REPEATS}, with sampled softmax {rule.FIXED_EPOCHS_SAMPLED}."""
    return f"{bounds}\n\n{listed}\n\nThe same on all logs: {', '.join(same)}.\n\n{numbers}"


def _default(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(f"{one:g}" for one in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


PARTS: dict[str, Callable[[], str]] = {
    "results": results,
    "contest": contest,
    "choosing": choosing,
    "records": records,
    "departures": departures,
    "widths": widths,
    "lags": lags,
    "mistakes": mistakes,
    "sizes": sizes,
    "agreement": agreement,
    "example": example,
    "modules": modules,
    "settings": settings,
    "recipe": recipe,
}

if __name__ == "__main__":
    if "--check" in sys.argv:
        old = [path.name for path, text in pages().items() if path.read_text() != text]
        sys.exit(f"not up to date: {', '.join(old)}: run make docs" if old else 0)
    for path, text in pages().items():
        path.write_text(text)
