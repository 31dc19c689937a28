"""Write docs/reliability.md from benchmarks/results/soak/*.json, so that no count in it is typed by hand.

The texts are in docs/reliability.txt: `{kills}` is the count of that name, `{cut short: *}` lists all whose names begin so, and
`{parts: ..}` is a line for each part of a topic. What a text says about outcomes is what its test has asserted: a run that failed has no counts.

python docs/make_reliability.py
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
RESULTS = HERE.parent / "benchmarks" / "results" / "soak"
TEXTS = HERE / "reliability.txt"
TARGET = HERE / "reliability.md"


class Result(NamedTuple):
    """The counts of a topic, by part and over all, and what they were made on."""

    counts: Counter[str]
    parts: dict[str, Counter[str]]
    seconds: float
    machine: dict[str, Any]


class Topic(NamedTuple):
    """A section of the page."""

    name: str
    title: str
    test: str
    row: str
    text: str


def topics() -> tuple[str, list[Topic]]:
    """Read the texts: what stands before all, then `== name | title | test`, a row of the table, and the section."""
    head, *rest = re.split(r"^== ", TEXTS.read_text(), flags=re.MULTILINE)
    found = []
    for section in rest:
        line, row, text = section.split("\n", 2)
        found.append(Topic(*(word.strip() for word in line.split("|")), row, text.strip()))
    return head.strip(), found


def read(topic: str) -> Result | None:
    """Read the results of a topic, `topic.json` and `topic.*.json`."""
    files = sorted([*RESULTS.glob(f"{topic}.json"), *RESULTS.glob(f"{topic}.*.json")])
    found = {path.stem.partition(".")[2]: json.loads(path.read_text()) for path in files}
    if not found:
        return None
    parts = {name: Counter(result["counts"]) for name, result in found.items()}
    counts: Counter[str] = Counter()
    for part in parts.values():
        counts.update(part)
    counts["parts"], counts["all"] = len(parts), sum(counts.values())
    for key in [key for key in counts if key.startswith("longest")]:
        counts[key] = max(part[key] for part in parts.values())
    return Result(counts, parts, sum(result["seconds"] for result in found.values()), next(iter(found.values()))["machine"])


def filled(text: str, found: Result) -> str:
    """Put counts in the places of their names."""
    return re.sub(r"\{([^{}]+)\}", lambda place: _value(place[1], found), text)


def _value(name: str, found: Result) -> str:
    if name.startswith("parts: "):
        line = name.removeprefix("parts: ")
        return "\n".join(filled(re.sub(r"<([^<>]+)>", r"{\1}", line.replace("<part>", part)), found._replace(counts=c)) for part, c in found.parts.items())
    if name.endswith("*"):
        some = {key.removeprefix(name[:-1]): count for key, count in found.counts.items() if key.startswith(name[:-1])}
        return ", ".join(f"{key} {count:,}" for key, count in sorted(some.items(), key=lambda pair: (-pair[1], pair[0])))
    if name.endswith(", s"):
        return f"{found.counts[name.removesuffix('s') + 'ms'] / 1000:.2f} s"
    if name not in found.counts and name not in ALWAYS:
        raise KeyError(f"docs/reliability.txt asks for '{name}', which was not counted")
    return f"{found.counts[name]:,}"


ALWAYS = {"backups compared", "said in an answer", "nothing wrong", "harmless"}
"""Counts that may be 0, and are then not in the results."""


def page() -> str:
    """Return the whole page."""
    head, all_topics = topics()
    found = {topic: result for topic in all_topics if (result := read(topic.name)) is not None}
    table = "".join(filled(topic.row, result) + "\n" for topic, result in found.items())
    missing = [topic.title for topic in all_topics if topic not in found]
    said = f"\nThe last long run has no result for: {', '.join(missing)}.\n" if missing else ""
    return f"{head}\n{table}{said}" + "".join(section(topic, result) for topic, result in found.items())


def section(topic: Topic, found: Result) -> str:
    """Return a section, with how to run it and what it ran on."""
    machine = found.machine
    where = f"{machine['processor']}, {machine['cores']} cores, Python {machine['python']}; commit {machine['commit']}"
    return f"\n## {topic.title}\n\n{filled(topic.text, found)}\n\n`python -m pytest -m soak {topic.test}`: {found.seconds:,.0f} s on {where}.\n"


if __name__ == "__main__":
    TARGET.write_text(page())
