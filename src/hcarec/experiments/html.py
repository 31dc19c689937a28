"""A document as one HTML file that holds its style and its figures, and loads nothing."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape
from importlib import resources
from pathlib import Path

from hcarec.errors import ConfigError
from hcarec.experiments.document import Block, Bullets, Cell, Document, Figure, Holds, Paragraph, Section, Table, Verdict, Verdicts
from hcarec.experiments.layout import anchor, by_claim, data_names, groups, numeric, plain, spans

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""Told to the browser, so that nothing is loaded even by mistake."""
_WIDE = 9
"""Columns from which on a table is set closer."""
_SHORT = 18
"""Letters up to which the name of a row is not broken."""
_INCH = 96
"""Pixels of a page in an inch."""
_KINDS: dict[Holds, str] = {"holds": "yes", "holds in part": "part", "does not hold": "no", "not tested": "open"}
_SHAPES = {
    "yes": '<circle cx="10" cy="10" r="9" fill="currentColor"/><path d="M5.5 10.4l3.1 3.1 6-6.6" class="mark"/>',
    "part": '<path d="M10 1.2l8.8 8.8-8.8 8.8L1.2 10z" class="ring"/><path d="M10 1.2v17.6L1.2 10z" fill="currentColor"/>',
    "no": '<rect x="1.5" y="1.5" width="17" height="17" rx="2.5" fill="currentColor"/><path d="M6.3 6.3l7.4 7.4m0-7.4l-7.4 7.4" class="mark"/>',
    "open": '<circle cx="10" cy="10" r="8" class="ring" stroke-dasharray="3.1 3.18"/>',
}
"""A shape for each verdict, so that none is told by its colour alone."""


def render(document: Document, figures: Path) -> str:
    """Return the page; the PNG files of its figures are read from the folder `figures`."""
    return _Page(figures).page(document)


class _Page:
    """A page being written, with the names that its links have taken."""

    def __init__(self, figures: Path) -> None:
        self._figures = figures
        self._taken = {"top", *(f"shape-{kind}" for kind in _SHAPES)}

    def page(self, document: Document) -> str:
        anchors = [anchor(section.heading, self._taken) for section in document.sections]
        links = "".join(f'<li><a href="#{name}">{_text(section.heading)}</a></li>\n' for name, section in zip(anchors, document.sections, strict=True))
        sections = "".join(self._section(name, section) for name, section in zip(anchors, document.sections, strict=True))
        facts = "".join(f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>\n" for name, value in document.facts)
        shapes = "".join(f'<symbol id="shape-{kind}" viewBox="0 0 20 20">{shape}</symbol>' for kind, shape in _SHAPES.items())
        return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{escape(plain(document.title))}</title>
<style>
{resources.files(__package__).joinpath("report.css").read_text(encoding="utf-8")}</style>
</head>
<body id="top">
<svg class="shapes" aria-hidden="true">{shapes}</svg>
<header>
<h1>{_text(document.title)}</h1>
<p class="lead">{_text(document.lead)}</p>
{f'<dl class="facts">{facts}</dl>' if facts else ""}
</header>
<nav aria-label="Contents">
<h2>Contents</h2>
<ol>
{links}</ol>
</nav>
<main>
{sections}</main>
</body>
</html>
"""

    def _section(self, name: str, section: Section) -> str:
        blocks = "".join(self._block(block) for block in section.blocks)
        link = f'<a class="here" href="#{name}" aria-label="Link to this section">#</a>'
        return f'<section id="{name}">\n<h2>{_text(section.heading)} {link}</h2>\n{blocks}</section>\n'

    def _block(self, block: Block) -> str:
        match block:
            case Paragraph(text):
                return f"<p>{_text(text)}</p>\n"
            case Bullets(items):
                return "<ul>\n" + "".join(f"<li>{_text(item)}</li>\n" for item in items) + "</ul>\n"
            case Table():
                return self._table(block)
            case Figure():
                return self._figure(block)
            case Verdicts(rows):
                return self._verdicts(rows)

    def _table(self, table: Table) -> str:
        head, rows = _heading(table), "".join(_row(table, row) for row in table.rows)
        note = f'<p class="note">{_text(table.note)}</p>\n' if table.note else ""
        wide = _classes(("wide", len(table.columns) > _WIDE))
        return self._captioned("table", table.title, f"<table{wide}>\n{head}<tbody>\n{rows}</tbody>\n</table>", note)

    def _figure(self, figure: Figure) -> str:
        path = self._figures / f"{figure.name}.png"
        try:
            drawing = path.read_bytes()
        except OSError as error:
            raise ConfigError(f"cannot read the figure '{path}': {error.strerror}; draw it first") from None
        image = f'<img src="data:image/png;base64,{base64.b64encode(drawing).decode()}" alt="{escape(plain(figure.alt))}"{_size(drawing)}>'
        return self._captioned("drawing", figure.title, image, f'<p class="note">{_text(figure.caption)}</p>\n' if figure.caption else "")

    def _captioned(self, kind: str, title: str, content: str, note: str) -> str:
        """Put something that may be wide into a box of its own that scrolls, under its title."""
        name = anchor(title, self._taken)
        return (
            f'<figure class="{kind}" aria-labelledby="{name}">\n<figcaption id="{name}">{_text(title)}</figcaption>\n'
            f'<div class="scroll" tabindex="0" role="region" aria-labelledby="{name}">\n{content}\n</div>\n{note}</figure>\n'
        )

    def _verdicts(self, rows: Sequence[Verdict]) -> str:
        """Write all signs at a glance, each a link, and then claim by claim what they rest on."""
        claims, names = by_claim(rows), data_names(rows)
        anchors = [anchor(f"verdict {row.data}", self._taken) for row in rows]
        glance = self._glance(claims, names, anchors) if len(names) > 1 else ""
        parts = []
        for claim, entries in claims.items():
            items = "".join(
                f'<li id="{anchors[number]}" class="{_KINDS[row.holds]}"><span class="badge">{_shape(row.holds)}{row.holds}</span>'
                f'<b class="data">{_text(row.data)}</b><span class="evidence">{_text(row.evidence)}</span></li>\n'
                for number, row in entries
            )
            parts.append(f'<section class="claim">\n<h3>{_text(claim)}</h3>\n<ul class="verdicts">\n{items}</ul>\n</section>\n')
        return glance + "".join(parts)

    def _glance(self, claims: dict[str, list[tuple[int, Verdict]]], names: list[str], anchors: list[str]) -> str:
        head = "".join(f'<th scope="col">{_text(name)}</th>' for name in names)
        body = ""
        for claim, entries in claims.items():
            cells = ["".join(_sign(row, anchors[number]) for number, row in entries if row.data == name) for name in names]
            body += f'<tr><th scope="row">{_text(claim)}</th>' + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>\n"
        key = "".join(f'<li class="{kind}">{_shape(word)}{word}</li>' for word, kind in _KINDS.items())
        table = f'<table>\n<thead><tr><th scope="col">Claim</th>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>'
        return self._captioned("glance", "Verdicts at a glance", table, f'<ul class="key">{key}</ul>\n')


def _heading(table: Table) -> str:
    """Write the heading of a table: a row of names, with a row of groups above it where there are any."""
    found = groups(table)
    first = {group.columns[0] for group in found if group.columns}
    classes = [_classes(("num", numeric(table, column)), ("first", bool(table.groups) and column in first)) for column in range(len(table.columns))]
    names = [f'<th scope="col"{kind}>{_text(name)}</th>' for name, kind in zip(table.columns, classes, strict=True)]
    if not table.groups:
        return f"<thead><tr>{''.join(names)}</tr></thead>\n"
    above = "".join(f'<th scope="colgroup" colspan="{len(group.columns)}" class="group">{_text(group.name)}</th>' for group in found)
    return f'<thead><tr><td class="corner"></td>{above}</tr>\n<tr>{"".join(names)}</tr></thead>\n'


def _row(table: Table, row: Sequence[Cell]) -> str:
    first = {group.columns[0] for group in groups(table) if group.columns} if table.groups else set()
    cells = [f'<th scope="row"{_classes(("short", len(plain(cell.text)) <= _SHORT))}>{_value(cell)}</th>' for cell in row[:1]]
    for column, cell in enumerate(row[1:], 1):
        kinds = _classes(("num", numeric(table, column)), ("first", column in first), ("best", cell.strong))
        cells.append(f"<td{kinds}>{_value(cell)}</td>")
    return f"<tr>{''.join(cells)}</tr>\n"


def _value(cell: Cell) -> str:
    text = f"<b>{_text(cell.text)}</b>" if cell.strong else _text(cell.text)
    spread = f' <small class="spread">{_text(cell.spread)}</small>' if cell.spread else ""
    return text + spread + (f' <small class="aside">{_text(cell.aside)}</small>' if cell.aside else "")


def _classes(*named: tuple[str, bool]) -> str:
    names = " ".join(name for name, given in named if given)
    return f' class="{names}"' if names else ""


def _shape(holds: Holds) -> str:
    return f'<svg class="shape" aria-hidden="true"><use href="#shape-{_KINDS[holds]}"/></svg>'


def _sign(row: Verdict, target: str) -> str:
    return f'<a class="{_KINDS[row.holds]}" href="#{target}" title="{row.holds}">{_shape(row.holds)}<span class="spoken">{row.holds}</span></a>'


def _size(drawing: bytes) -> str:
    """Return the size of a PNG file as attributes, so that the page does not jump and a wide drawing is not shrunk beyond reading."""
    from PIL import Image

    with Image.open(io.BytesIO(drawing)) as image:
        dots = float(image.info.get("dpi", (_INCH, _INCH))[0])
        width, height = (round(side * _INCH / dots) for side in image.size)
    return f' width="{width}" height="{height}" style="--own: {width}px"'


def _text(text: str) -> str:
    """Set a text, its marks as elements and everything else escaped."""
    written = ""
    for span in spans(text):
        piece = escape(span.text)
        piece = f"<code>{piece}</code>" if span.code else piece.replace("_", "_<wbr>")  # long names may break there
        written += f"<strong>{piece}</strong>" if span.strong else piece
    return written.strip()
