"""The sections of docs/benchmarks.md that a GPU measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

LAYER = """\
A whole layer of HCA-GRU-x5-h5, forward and backward, against `torch.nn.GRU` (cuDNN, float32, without attention): medians of replays of CUDA graphs.
The form *masked, residual* masks padding and fuses by a residual, *paper* does neither. The error is the greatest relative one in norm, of outputs and
gradients, against float64; the floor is the larger of bytes and operations at the card's measured rates."""
FORMS = {"paper": "paper", "winner": "masked, residual"}
"""The forms of a layer: their names in the results, and here."""
GRID = "How many times as fast as cuDNN at other sizes; below 1 it is slower, which is so wherever there are few sequences:"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table in Markdown; all columns but the first stand to the right."""
    return ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1), *("| " + " | ".join(row) + " |" for row in rows)]


def training(result: dict[str, Any]) -> list[str]:
    """Return the section of mini-batch training."""
    rows = []
    for case in result["cases"]:
        step, epoch, goal = f"{case['milliseconds_a_step']:.2f}", f"{case['seconds']:.3f}", f"{case['goal']:g}"
        memory, speed = f"{case['peak_memory_gib']:.2f}", f"{case['targets_per_second']:,.0f}"
        rows.append((case["case"], case["precision"], f"{case['steps']:,}", step, epoch, goal, memory, speed))
    lines = ["## Mini-batch training on a GPU", "", f"{_card(result)}; an epoch without evaluation.", ""]
    lines += table(("case", "precision", "steps", "ms a step", "epoch in s", "goal", "GiB", "targets/s"), rows)
    for many in result["shared"]:
        took = f"{many['many']:.3f} s an epoch against {many['one']:.3f} s alone, {many['ratio']:.2f} times as long (goal {many['goal']:g})"
        lines += ["", f"{many['runs']} runs of {many['case']} side by side, {many['how']}, {many['precision']}: {took}."]
    return lines


def kernels(result: dict[str, Any]) -> list[str]:
    """Return the section of the kernels: a layer, the loss and the evaluation."""
    lines = ["## Kernels on a GPU", "", f"{_card(result)}.", ""]
    lines += [*_layer(result["layer"]), "", *_loss(result["loss"]), "", *_evaluation(result["evaluation"])]
    if commits := result.get("commits"):
        each = ", ".join(f"{commit} ({part})" for part, commit in commits.items())
        lines += ["", f"Parts were measured one after the other, at commits {each}."]
    return lines


def _card(result: dict[str, Any]) -> str:
    gpu = result["machine"]["gpu"]
    return f"{gpu['card']}, driver {gpu['driver']}, torch {gpu['torch']}, Triton {gpu['triton']}"


def _layer(layer: dict[str, Any]) -> list[str]:
    """Return the tables of a layer against cuDNN."""
    rows = []
    for case in layer["goals"]:
        ours, cudnn = case["hcarec"], case["cudnn"]
        times = (f"{ours['graph_ms']:.3f}", f"{cudnn['graph_ms']:.3f}", f"{case['times_faster']:.2f}", f"{case['goal']:g}")
        plain, floor = f"{ours['plain_ms']:.2f}, {cudnn['plain_ms']:.2f}", f"{max(case['floors_ms'].values()):.3f}"
        rows.append((_size(case), FORMS[case["form"]], *times, plain, f"{max(case['errors'].values()):.0e}", floor))
    heads = ("batch x length x d", "form", "ms", "cuDNN ms", "times as fast", "goal", "plain calls, ms", "error", "floor, ms")
    grid = [(_size(case), f"{case['cudnn_graph_ms']:.3f}", *(f"{case[form]['times_faster']:.2f}" for form in FORMS)) for case in layer["grid"]]
    return [LAYER, "", *table(heads, rows), "", GRID, "", *table(("batch x length x d", "cuDNN ms", *FORMS.values()), grid)]


def _size(case: dict[str, Any]) -> str:
    return f"{case['batch']:,} x {case['length']} x {case['d']}"


def _loss(cases: list[dict[str, Any]]) -> list[str]:
    """Return the table of the loss against its bare products."""
    rows = []
    for case in cases:
        for name, ms in case["ms"].items():
            ratio, extra, error = f"{case['ratio'][name]:.2f}", f"{case['extra_mib'][name]:.0f}", f"{case['errors'][name][0]:.0e}"
            rows.append((case["precision"], str(case["corrected"]), name, f"{ms:.1f}", ratio, extra, error))
    first, goals = cases[0], cases[0]["goals"]
    return [
        f"Cross-entropy over {first['items']:,} items, d = {first['d']}, {first['positions']:,} positions, forward and backward. The ratio is to the three",
        f"bare products of cuBLAS in the same precision; goals: {goals['ratio']:g} times, {goals['extra_mib']:,} MiB beside parameters and gradients.",
        "",
        *table(("precision", "corrected items", "what", "ms", "ratio", "extra MiB", "error of the loss"), rows),
    ]


def _evaluation(figures: dict[str, Any]) -> list[str]:
    """Return what the evaluation of a large catalog takes."""
    seconds = ", ".join(f"{name.replace('_', ', ')} {case['seconds']:.3f} s" for name, case in figures["cases"].items())
    what = f"{figures['users']:,} users x {figures['items']:,} items, d = {figures['d']}, all metrics with the exact AUC"
    return [
        f"Evaluation of {what} (goal {figures['goal_seconds']:g} s): {seconds}.",
        f"With {figures['corrected_per_user']} corrected items a user it takes {figures['corrected_ratio']:.2f} times as long.",
    ]
