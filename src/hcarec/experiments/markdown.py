"""A document as GitHub's Markdown."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import groupby
from urllib.parse import quote

from hcarec.experiments.document import Block, Bullets, Cell, Document, Figure, Holds, Paragraph, Table, Verdict, Verdicts
from hcarec.experiments.layout import Group, Span, by_claim, data_names, groups, numeric, plain, spans

SIGNS: dict[Holds, str] = {"holds": "✓", "holds in part": "◐", "does not hold": "✗", "not tested": "○"}
MOST_COLUMNS = 8
"""Columns beside the first that a table may have; a wider one is cut into about equal parts that stand below each other."""
_SPECIAL = re.compile(r"[\\`*\[\]~$#&|]|(?<![^\W_])_|_(?![^\W_])")
_AT_START = re.compile(r"^(\d+)([.)])(?=\s|$)|^([-+>=:])")


def render(document: Document) -> str:
    """Return the document; its figures are looked for in figures/ beside it."""
    parts = [f"# {_line(document.title)}", _line(document.lead)]
    parts += ["\n".join(f"- **{_line(name)}**: {_line(value)}" for name, value in document.facts)]
    for section in document.sections:
        parts += [f"## {_line(section.heading)}", *(_block(block) for block in section.blocks)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _block(block: Block) -> str:
    match block:
        case Paragraph(text):
            return _line(text)
        case Bullets(items):
            return "\n".join(f"- {_line(item)}" for item in items)
        case Figure(title, name, caption, alt):
            picture = f"![{_escaped(plain(alt))}](figures/{quote(name)}.png)"
            return f"**{_inline(title)}**\n\n{picture}\n\n{_line(caption)}".rstrip()
        case Table():
            return _table(block)
        case Verdicts(rows):
            return _verdicts(rows)


def _table(table: Table) -> str:
    """Write a table, a wide one as several with the same rows; groups are never torn."""
    names = [_inline(column, True) for column in table.columns]
    found = groups(table)
    for group in found:
        for column in group.columns if group.name else ():
            names[column] = _joined(group.name, table.columns[column])
    cells = [[_cell(cell) for cell in row] for row in table.rows]
    right = [numeric(table, column) for column in range(len(names))]
    written = [
        _grid([[row[column] for column in (0, *piece)] for row in (names, *cells)], [right[column] for column in (0, *piece)]) for piece in _pieces(found)
    ]
    return "\n\n".join([f"**{_inline(table.title)}**", *written, *([_line(table.note)] if table.note else [])])


def _pieces(found: Sequence[Group]) -> list[list[int]]:
    """Share the columns out among as many tables as are needed, so that none is much wider than another."""
    total = sum(len(group.columns) for group in found)
    planned = max(1, math.ceil(total / MOST_COLUMNS))
    pieces: list[list[int]] = [[]]
    for group in found:
        if len(pieces) < planned and len(pieces[-1]) + len(group.columns) / 2 > total / planned:
            pieces.append([])
        pieces[-1] += group.columns
    return pieces


def _joined(group: str, column: str) -> str:
    """Name a column by its group as well: Recall under @5 is Recall@5."""
    return _inline(f"{column}{group}" if group.startswith("@") else f"{group} {column}", True)


def _cell(cell: Cell) -> str:
    aside = f"({_inline(cell.aside, True)})" if cell.aside else ""
    text = _spans([span._replace(strong=True) for span in spans(cell.text)] if cell.strong else spans(cell.text), True)
    return " ".join(part for part in (text, _inline(cell.spread, True), aside) if part)


def _grid(rows: list[list[str]], right: Sequence[bool]) -> str:
    """Write rows, the first of them the heading, in columns that line up."""
    widths = [max(3, *(len(row[column]) for row in rows)) for column in range(len(right))]
    lines = [[cell.rjust(width) if end else cell.ljust(width) for cell, width, end in zip(row, widths, right, strict=True)] for row in rows]
    rule = ["-" * (width - 1) + ":" if end else "-" * width for width, end in zip(widths, right, strict=True)]
    return "\n".join("| " + " | ".join(line) + " |" for line in (lines[0], rule, *lines[1:]))


def _verdicts(rows: Sequence[Verdict]) -> str:
    """Write a table of all signs where there are several data sets, and then claim by claim what they rest on."""
    claims, names = by_claim(rows), data_names(rows)
    parts = []
    if len(names) > 1:
        signs = [[_inline(claim, True), *(_signs(entries, name) for name in names)] for claim, entries in claims.items()]
        parts = [_grid([["Claim", *(_inline(name, True) for name in names)], *signs], [False] * (len(names) + 1))]
        parts += [", ".join(f"{sign} {word}" for word, sign in SIGNS.items())]
    for claim, entries in claims.items():
        parts += [
            f"**{_inline(claim)}**",
            "\n".join(f"- {SIGNS[row.holds]} **{row.holds}** on {_inline(row.data)}: {_inline(row.evidence)}" for _, row in entries),
        ]
    return "\n\n".join(parts)


def _signs(entries: list[tuple[int, Verdict]], name: str) -> str:
    return " ".join(SIGNS[row.holds] for _, row in entries if row.data == name)


def _line(text: str) -> str:
    """Set a text that begins a line or a cell, where some characters would begin a list or a quotation."""
    return _AT_START.sub(lambda match: f"{match[1]}\\{match[2]}" if match[2] else f"\\{match[3]}", _inline(text).strip())


def _inline(text: str, in_table: bool = False) -> str:
    return _spans(spans(text), in_table)


def _spans(pieces: list[Span], in_table: bool) -> str:
    """Set the pieces; neighbours that are strong share one pair of marks."""
    written = []
    for strong, run in groupby(pieces, lambda span: span.strong):
        text = "".join(_code(span.text, in_table) if span.code else _escaped(span.text) for span in run)
        written.append(f"**{text.strip()}**" if strong else text)
    return "".join(written)


def _code(text: str, in_table: bool) -> str:
    shown = text.replace("|", "\\|") if in_table else text  # a table is cut at bars before code is seen
    return f"`{shown}`"


def _escaped(text: str) -> str:
    """Write every character that Markdown would read as a mark so that it is shown."""
    return _SPECIAL.sub(lambda match: "\\" + match[0], text).replace("<", "&lt;")
