"""The paper's claims, each with a verdict for a data set: what was measured, how sure it is, and what the paper says."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from hcarec.experiments.document import Holds, Verdict

ENOUGH, SOME = 0.4, 0.2
"""The paper's gain in MAP and NDCG is "almost 50%": from 40% on we say that the claim holds, from 20% on that it holds in part."""
AUC_MARGIN = 0.01
"""A gain in AUC that an interval must rule out before we say that there is none."""
HOLDS: Holds = "holds"
IN_PART: Holds = "holds in part"
FAILS: Holds = "does not hold"
UNTESTED: Holds = "not tested"


def verdicts(
    data: str, methods: tuple[str, str, str], tests: Mapping[str, Any] | None, attention: Mapping[str, Any] | None, ks: Sequence[int]
) -> list[Verdict]:
    """Judge the claims on one data set; `methods` are the networks x*, h* and x*-h* of Table 2, `tests` their paired tests against GRU."""
    found: Mapping[str, Any] = (tests or {}).get("tests", {})
    complete = found.get(methods[2])
    change = (tests or {}).get("recall_gain_change", {}).get(methods[2])
    judged = [
        _better(data, complete, ks, methods[2]),
        _half(data, complete, ks),
        _recall(data, complete, change, ks),
        _auc(data, complete),
        _best(data, methods, tests, ks),
    ]
    return [*judged, _monotonic(data, attention)]


def _better(data: str, test: Mapping[str, Any] | None, ks: Sequence[int], method: str) -> Verdict:
    claim = "HCA-GRU is better than GRU in MAP and NDCG"
    if test is None:
        return Verdict(claim, data, UNTESTED, "there are no paired tests of these runs")
    entries = [test[f"{metric}@{k}"] for metric in ("map", "ndcg") for k in ks]
    higher, lower = (sum(entry["verdict"] == word for entry in entries) for word in ("higher", "lower"))
    holds = HOLDS if higher == len(entries) else IN_PART if higher > len(entries) / 2 and not lower else FAILS
    counts = f"shown higher in {higher} and lower in {lower} of {len(entries)} tests"
    return Verdict(claim, data, holds, f"{method}: {counts}; NDCG@{max(ks)} {_gain(test[f'ndcg@{max(ks)}'])}")


def _half(data: str, test: Mapping[str, Any] | None, ks: Sequence[int]) -> Verdict:
    claim = "The gain in MAP and NDCG is about half"
    if test is None:
        return Verdict(claim, data, UNTESTED, "there are no paired tests of these runs")
    gains = [test[f"{metric}@{k}"]["relative"] or 0.0 for metric in ("map", "ndcg") for k in ks]
    holds = HOLDS if min(gains) >= ENOUGH else IN_PART if min(gains) >= SOME else FAILS
    return Verdict(claim, data, holds, f"gains of {min(gains):+.1%} to {max(gains):+.1%} over MAP and NDCG at all k")


def _recall(data: str, test: Mapping[str, Any] | None, change: Mapping[str, float] | None, ks: Sequence[int]) -> Verdict:
    first, last = min(ks), max(ks)
    claim = f"The gain in Recall shrinks as k grows from {first} to {last}"
    if test is None or change is None:
        return Verdict(claim, data, UNTESTED, "there are no paired tests of these runs, or no hits to compare")
    gains = [test[f"recall@{k}"]["relative"] or 0.0 for k in ks]
    falling = all(a > b for a, b in itertools.pairwise(gains))
    gained = test[f"recall@{first}"]["verdict"] == "higher"
    holds = HOLDS if gained and change["low"] > 0 else IN_PART if gained and falling else FAILS
    listed = ", ".join(f"{gain:+.1%} at {k}" for k, gain in zip(ks, gains, strict=True))
    interval = f"95% interval {100 * change['low']:+.1f} to {100 * change['high']:+.1f}"
    between = f"the gain at {first} less that at {last} is {100 * change['value']:+.1f} points ({interval})"
    return Verdict(claim, data, holds, f"gains {listed}; {between}")


def _auc(data: str, test: Mapping[str, Any] | None) -> Verdict:
    claim = "HCA-GRU gains nothing in AUC"
    if test is None:
        return Verdict(claim, data, UNTESTED, "there are no paired tests of these runs")
    entry = test["auc"]
    holds = FAILS if entry["verdict"] == "higher" else HOLDS if entry["high"] < AUC_MARGIN else UNTESTED
    points = f"{100 * entry['difference']:+.2f} points ({100 * entry['low']:+.2f} to {100 * entry['high']:+.2f}), {_p(entry)}"
    return Verdict(claim, data, holds, f"AUC {100 * entry['base']:.2f} of GRU, {100 * entry['value']:.2f} of HCA-GRU: {points}")


def _best(data: str, methods: tuple[str, str, str], tests: Mapping[str, Any] | None, ks: Sequence[int]) -> Verdict:
    claim = "The complete network is better than either level alone"
    if tests is None:
        return Verdict(claim, data, UNTESTED, "there are no paired tests of these runs")
    name = f"ndcg@{max(ks)}"
    beside = {single: entry[name] for single, entry in tests["complete_against"].items()}
    verdicts = [entry["verdict"] for entry in beside.values()]
    holds = HOLDS if all(word == "higher" for word in verdicts) else IN_PART if "higher" in verdicts and "lower" not in verdicts else FAILS
    listed = "; ".join(f"{entry['relative'] or 0:+.1%} over {single} ({_p(entry)})" for single, entry in beside.items())
    return Verdict(claim, data, holds, f"NDCG@{max(ks)} of {methods[2]}: {listed}")


def _monotonic(data: str, attention: Mapping[str, Any] | None) -> Verdict:
    claim = "Attention weights are not monotonic in time"
    if attention is None:
        return Verdict(claim, data, UNTESTED, "the experiment `attention` has not been run")
    parts, shares = [], []
    for level, words in (("input", "inputs"), ("hidden", "hidden states")):
        one = attention.get(level)
        if one is None or one["width"] < 3:
            continue  # two weights always rise or fall
        monotonic = one["rising"] + one["falling"]
        shares.append(monotonic)
        newest = f"the newest is highest in {one['newest_highest']:.0%}, highest over lowest weight {one['median_ratio']:.2g}"
        parts.append(f"over {words} {monotonic:.0%} of windows only rise or only fall (chance {2 * one['chance']:.0%}), {newest}")
    if not shares:
        return Verdict(claim, data, UNTESTED, "windows of two weights always rise or fall")
    holds = HOLDS if max(shares) < 0.5 else FAILS if min(shares) >= 0.5 else IN_PART
    return Verdict(claim, data, holds, f"{attention['method']}, {attention['users']:,} users: {'; '.join(parts)}")


def _gain(entry: Mapping[str, Any]) -> str:
    base = entry["base"]
    return (
        f"{entry['relative']:+.1%} (95% interval over users {entry['low'] / base:+.1%} to {entry['high'] / base:+.1%}, {_p(entry)})"
        if base
        else "without a base"
    )


def _p(entry: Mapping[str, Any]) -> str:
    return f"p {entry['p_holm']:.2g} after Holm"
