"""The report's document and its renderers."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from hcarec.errors import ConfigError
from hcarec.experiments import html, layout, markdown
from hcarec.experiments.document import Bullets, Cell, Document, Figure, Paragraph, Section, Table, Verdict, Verdicts
from hcarec.plots import figure

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
    with figure(tmp_path / "drawing one.png", (1.25, 0.84), dots=200):
        pass
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
    assert page.text.count(name) == ordinary.text.count("tmall") > 8
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
    assert all(value.startswith("data:image/png;base64,") for value in page.all("src"))
    ids, links = page.all("id"), page.all("href")
    assert len(ids) == len(set(ids)) and links
    assert all(link.startswith("#") and link[1:] in ids for link in links)
    assert set(page.all("aria-labelledby")) <= set(ids)
    assert "@import" not in text and "url(" not in text
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert html.render(document(), folder) == html.render(document(), folder)


def test_a_figure_keeps_its_size(folder: Path) -> None:
    import base64

    page = Reader(html.render(document(), folder))
    image = {name: value for tag, name, value in page.attributes if tag == "img"}
    assert (image["width"], image["height"]) == ("120", "81")
    assert base64.b64decode(image["src"].partition(",")[2]) == (folder / "drawing one.png").read_bytes()


def test_a_figure_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the figure"):
        html.render(document(), tmp_path)


def test_the_tables_of_markdown_are_whole_and_narrow() -> None:
    tables = re.findall(r"(?:^\|.*\|\n)+", markdown.render(document()), re.M)
    assert len(tables) == 4  # verdicts, the wide one in two, the data
    for table in tables:
        counts = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(counts) == 1
        assert counts.pop() <= markdown.MOST_COLUMNS + 3  # groups are not torn
        assert len({len(line) for line in table.splitlines()}) == 1  # lined up
    assert "Recall0@5" in tables[1] and "NDCG3@20" in "".join(tables[1:3]) and "NDCG4 " in tables[2]
    assert "| **3.25** ± 0.12 (paper 7.4) |" in tables[1]


def test_figures_stand_to_the_right() -> None:
    values = ["1,234", "+3.1%", "-0.5", "−2", "12 to 13", "x3", "", "-", "< 0.01", "93, 97", "-0.1 to +0.2"]
    table = Table("t", ["name", *values], [[Cell("n"), *map(Cell, values)]])
    assert [layout.numeric(table, column) for column in range(len(values) + 1)] == [False, True, True, True, True, False, False, True, True, True, True, True]


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
