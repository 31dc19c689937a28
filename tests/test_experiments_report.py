"""The report's document and its renderers, and the figures of the experiments."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from hcarec.errors import ConfigError
from hcarec.experiments import figures, html, layout, markdown
from hcarec.experiments.document import Bullets, Cell, Document, Figure, Paragraph, Section, Table, Verdict, Verdicts
from hcarec.experiments.looks import look

HOSTILE = [
    "<script>alert(1)</script>",
    "a|b",
    "<img src=x onerror=y>",
    "[x](http://a.b)",
    "&lt;",
    "_a_ *b* ~~c~~",
    "# 1. - x",
    "$x^2$",
    "\"'>",
    "1. x",
    "back\\slash|",
]
SVG = b'<?xml version="1.0"?><svg width="90pt" height="60.5pt"><path d="M 1.23456 -2.98765"/><g transform="scale(0.015625)"/></svg>'


def document(name: str = "tmall") -> Document:
    columns = ["method", *(f"{metric}{number}" for number in range(5) for metric in ("Recall", "MAP", "NDCG"))]
    row = [Cell("GRU"), *(Cell(f"{number}.25", number == 3, "± 0.12", "paper 7.4") for number in range(15))]
    wide = Table("A wide table", columns, [row, row], "Its note.", [(f"@{k}", 3) for k in (5, 10, 15, 20)])
    verdicts = [Verdict("Claim one", name, "holds", "evidence 1"), Verdict("Claim one", "other", "does not hold", "evidence 2"),
                Verdict("Claim two", name, "holds in part", "evidence 3"), Verdict("Claim two", "other", "not tested", "evidence 4")]  # fmt: skip
    sections = [
        Section("Claims", [Verdicts(verdicts), Paragraph(f"About {name} and `code` and **strong words**.")]),
        Section("Claims", [wide, Table(f"Data {name}", ["set", "users"], [[Cell(name), Cell("1,234")]]), Bullets([f"point {name}", "another"])]),
        Section("Figures", [Figure("A drawing", "drawing one", f"Caption of {name}.", f"Shows {name}.")]),
    ]
    return Document(f"Report on {name}", "The lead.", sections, [("commit", "abc"), ("data", name)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "drawing one.svg").write_bytes(SVG)
    return tmp_path


class Reader(HTMLParser):
    """Collects the elements, the attributes and the text of a page, and sees that every element is closed."""

    VOID = ("meta", "img", "wbr", "br", "path", "circle", "rect", "use")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, name: str) -> list[str]:
        return [value for _, attribute, value in self.attributes if attribute == name]


def as_shown(text: str) -> Reader:
    """Read Markdown as GitHub would, HTML in it included."""
    return Reader(MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text))


@pytest.mark.parametrize("name", HOSTILE)
def test_names_come_out_as_text(name: str, folder: Path) -> None:
    plain = document()
    ordinary, page = Reader(html.render(plain, folder)), Reader(html.render(document(name), folder))
    assert page.text.count(name) == ordinary.text.count("tmall") == 9
    assert page.tags == ordinary.tags or "_" in name  # where a long name may break there is one element more
    written, shown = markdown.render(plain), as_shown(markdown.render(document(name)))
    assert shown.text.count(name) == as_shown(written).text.count("tmall")
    assert shown.tags == as_shown(written).tags
    assert f"Shows {name}." in shown.all("alt") and f"Shows {name}." in page.all("alt")


@given(st.text(st.characters(blacklist_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1))
def test_any_text_is_shown_as_it_is(text: str) -> None:
    text = re.sub(r"[`*]", "", text)  # the two marks that mean something
    wanted = " ".join(text.split(" ")).strip(" ")
    page = as_shown(markdown.render(Document("t", "l", [Section("s", [Paragraph(f"a {text} b"), Table("x", ["c"], [[Cell(f"a {text} b")]])])])))
    assert page.text.count(re.sub(" +", " ", f"a {wanted} b").replace("a  b", "a b")) == 2
    assert page.tags == ["h1", "p", "h2", "p", "p", "strong", "table", "thead", "tr", "th", "tbody", "tr", "td"]


def test_marks_and_what_only_looks_like_them() -> None:
    pieces = layout.spans("a `x|y` and **very `z`**, 2 ** 3 ** 4, `open")
    assert [(span.text, span.code, span.strong) for span in pieces if span.code or span.strong] == [
        ("x|y", True, False), ("very ", False, True), ("z", True, True)]  # fmt: skip
    assert layout.plain("a\n`b`\x00 \ud800 **c**") == "a b c"
    cell = markdown.render(Document("t", "l", [Section("s", [Table("x", ["c"], [[Cell("**a** `b|c`", True)]])])]))
    assert as_shown(cell).text.count("a b|c") == 1
    assert as_shown(cell).tags.count("strong") == 2


def test_everything_is_there_once(folder: Path) -> None:
    page, shown = Reader(html.render(document(), folder)), as_shown(markdown.render(document()))
    for text in (page.text, shown.text):
        for once in ("A wide table", "Its note.", "Data tmall", "A drawing", "Caption of tmall.", *(f"evidence {n}" for n in (1, 2, 3, 4)), "The lead.", "abc"):
            assert text.count(once) == 1, once
        for word in ("holds in part", "does not hold", "not tested"):
            assert text.count(word) >= 2  # in the key and beside the evidence
        assert text.count("0.25") >= 2 and text.count("± 0.12") == text.count("paper 7.4") == 30
    assert page.tags.count("figure") == 4  # two tables, the drawing, the verdicts at a glance
    assert page.tags.count("img") == shown.tags.count("img") == 1
    assert shown.all("src") == ["figures/drawing%20one.png"]


def test_the_page_holds_all_it_needs(folder: Path) -> None:
    text = html.render(document("see https://example.org"), folder)
    page = Reader(text)
    assert not {"script", "link", "iframe", "object"} & set(page.tags)
    assert all(value.startswith("data:image/svg+xml;base64,") for value in page.all("src"))
    ids, links = page.all("id"), page.all("href")
    assert len(ids) == len(set(ids)) and links
    assert all(link.startswith("#") and link[1:] in ids for link in links)
    assert set(page.all("aria-labelledby")) <= set(ids)
    assert "@import" not in text and "url(" not in text
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert html.render(document(), folder) == html.render(document(), folder)


def test_a_figure_keeps_its_size_and_loses_only_digits(folder: Path) -> None:
    import base64

    page = Reader(html.render(document(), folder))
    image = {name: value for tag, name, value in page.attributes if tag == "img"}
    assert (image["width"], image["height"]) == ("120", "81")
    assert base64.b64decode(image["src"].partition(",")[2]) == SVG.replace(b"1.23456 -2.98765", b"1.23 -2.98")


def test_a_figure_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the figure"):
        html.render(document(), tmp_path)


def test_the_tables_of_markdown_are_whole_and_narrow() -> None:
    tables = re.findall(r"(?:^\|.*\|\n)+", markdown.render(document()), re.M)
    assert len(tables) == 4  # verdicts, the wide one in two, the data
    for table in tables:
        counts = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(counts) == 1
        assert counts.pop() <= markdown.MOST_COLUMNS + 2
        assert len({len(line) for line in table.splitlines()}) == 1  # lined up
    assert "Recall0@5" in tables[1] and "NDCG3@20" in "".join(tables[1:3]) and "NDCG4 " in tables[2]
    assert "| **3.25** ± 0.12 (paper 7.4) |" in tables[1]


def test_figures_stand_to_the_right() -> None:
    values = ["1,234", "+3.1%", "-0.5", "−2", "12 to 13", "x3", "", "-", "< 0.01", "93, 97"]
    table = Table("t", ["name", *values], [[Cell("n"), *map(Cell, values)]])
    assert [layout.numeric(table, column) for column in range(len(values) + 1)] == [False, True, True, True, True, False, False, True, True, True, True]


def test_rows_and_groups_must_fit() -> None:
    with pytest.raises(AssertionError, match="more or fewer cells"):
        markdown.render(Document("t", "l", [Section("s", [Table("x", ["a", "b"], [[Cell("1")]])])]))
    with pytest.raises(AssertionError, match="wider"):
        markdown.render(Document("t", "l", [Section("s", [Table("x", ["a", "b"], [], groups=[("g", 2)])])]))


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    r, g, b = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def test_the_contrast_of_every_text_is_enough_in_light_and_dark() -> None:
    style = Path(html.__file__).with_name("report.css").read_text()
    light, dark = (dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", part)) for part in style.split("* { box-sizing")[0].split("prefers-color-scheme: dark"))
    pairs = [(ink, paper) for ink in ("ink", "muted", "link", "yes", "part", "no", "open") for paper in ("paper", "card")]
    pairs += [(kind, f"{kind}-tint") for kind in ("yes", "part", "no", "open")] + [("ink", "best"), ("muted", "best"), ("ink", "open-tint")]
    for theme in (light, dark):
        for ink, paper in pairs:
            high, low = sorted((luminance(theme[ink]), luminance(theme[paper])), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= 4.5, (ink, paper)


METHODS = ["GRU", *(f"HCA-GRU-{family}{width}" for family in "xh" for width in (2, 3, 4, 5)), "HCA-GRU-x5-h5"]
VALUES = {
    "schema": {"data": pl.String, "method": pl.String, "seed": pl.Int64, "selection": pl.String, "metric": pl.String, "k": pl.Int32, "value": pl.Float64},
    "orient": "row",
}


def runs(data: str = "a $b_c$", methods: list[str] = METHODS, seeds: int = 2, ks: tuple[int, ...] = (5, 10), value: float | None = None) -> pl.DataFrame:
    rows = [
        (data, method, seed, "validation", metric, k, value if value is not None else 0.01 * (1 + number) * (1 + seed) * (k or 1))
        for number, method in enumerate(methods)
        for seed in range(seeds)
        for metric in ("recall", "map", "ndcg", "auc")
        for k in (ks if metric != "auc" else (None,))
    ]
    return pl.DataFrame(rows, **VALUES)  # type: ignore[arg-type]


def curves(epochs: int = 3, methods: list[str] = ["BPR", "GRU", "HCA-GRU-h5"]) -> pl.DataFrame:  # noqa: B006
    rows = [("a", m, seed, "validation", e, 9.0 / e, None if e == 2 else 0.1 * e, 10) for m in methods for seed in (0, 1) for e in range(1, epochs + 1)]
    names = ["data", "method", "seed", "selection", "epoch", "loss", "ndcg", "steps"]
    return pl.DataFrame(
        rows, schema=dict(zip(names, (pl.String, pl.String, pl.Int64, pl.String, pl.Int64, pl.Float64, pl.Float64, pl.Int64), strict=True)), orient="row"
    )


MONOTONY = pl.DataFrame(
    {"data": ["a", "b"], "method": ["m", "m"], "level": ["input", "hidden"], "width": [2, 5], "rising": [0.4, float("nan")], "falling": [0.6, 0.1]}
)
SCARCE = [runs(), runs(seeds=1), runs(methods=["GRU"]), runs(methods=["HCA-GRU-x7"]), runs(value=float("nan")), runs(value=0.0), runs(seeds=0), runs(ks=(20,))]


@pytest.mark.parametrize("frame", SCARCE, ids=range(len(SCARCE)))
def test_figures_are_drawn_from_whatever_there_is(frame: pl.DataFrame, tmp_path: Path) -> None:
    for path in (figures.widths({"a": frame, "b": runs("b")}, tmp_path / "w.svg"), figures.gains(pl.concat([frame, runs("b", seeds=1)]), tmp_path / "g.svg")):
        assert path.read_bytes().startswith(b"<?xml")
    assert figures.gains(frame, tmp_path / "alone.svg").exists()


def test_no_data_set_and_no_run_are_drawn_too(tmp_path: Path) -> None:
    for path in (figures.widths({}, tmp_path / "w.png"), figures.losses(curves(0), tmp_path / "l.png"), figures.monotony(MONOTONY.clear(), tmp_path / "m.png")):
        assert path.read_bytes().startswith(b"\x89PNG")


def test_the_same_runs_give_the_same_bytes(tmp_path: Path) -> None:
    for ending in ("png", "svg"):
        for name in ("one", "two"):
            target = tmp_path / name
            figures.widths({"a": runs()}, target / f"w.{ending}")
            figures.gains(runs(), target / f"g.{ending}")
            figures.losses(curves(), target / f"l.{ending}")
            figures.attention([[0.5, 0.5], [0.25, 0.75]], [0.4, 0.6], ["$x$", "<y>"], target / f"a.{ending}", "title")
            figures.monotony(MONOTONY, target / f"m.{ending}")
    made = sorted((tmp_path / "one").iterdir())
    assert len(made) == 10
    for path in made:
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name


def texts(path: Path) -> str:
    """Return what an SVG file says: matplotlib notes each text as a comment beside its outline."""
    return "\n".join(re.findall(r"<!-- (.*?) -->", path.read_text()))


def test_figures_say_what_they_show(tmp_path: Path) -> None:
    widths = texts(figures.widths({"a $b_c$": runs(), "b": runs("b")}, tmp_path / "w.svg"))
    assert widths.count("NDCG") == 2 and "a $b_c$, %" in widths and all(name in widths for name in ("GRU", "x2", "x5", "h2", "h5", "@10"))
    gains = texts(figures.gains(runs(), tmp_path / "g.svg"))
    assert all(name in gains for name in ("NDCG@10", "MAP@10", "Recall@5", "Recall@10"))
    assert "x5, h5, x5-h5" in gains  # the best of each family, whose values grow with the width here
    losses = texts(figures.losses(curves(), tmp_path / "l.svg", k=10))
    assert "NDCG@10, %" in losses and losses.index("GRU") < losses.index("HCA-GRU-h5")
    attention = texts(figures.attention(None, [0.4, 0.6], ["one"], tmp_path / "a.svg"))
    assert "(before the start)" in attention and "0.60" in attention
    assert "2 inputs" in texts(figures.monotony(MONOTONY, tmp_path / "m.svg"))


def test_two_selections_are_never_drawn_as_one(tmp_path: Path) -> None:
    mixed = pl.concat([runs(), runs().with_columns(selection=pl.lit("best-epoch-on-test"))])
    with pytest.raises(AssertionError, match="two selections"):
        figures.gains(mixed, tmp_path / "g.svg")


def test_methods_differ_by_more_than_colour() -> None:
    looks = [look(method) for method in [*METHODS, "BPR", "POP", "Random"]]
    assert len({(one.marker, str(one.line), one.filled) for one in looks}) == len(looks)
