"""The files of the page, without a browser: small, complete, and with nothing in them that its policy forbids."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hcarec.serve.page_files import FOLDER, read_page

FILES = sorted(path for path in FOLDER.iterdir() if path.is_file())
HTML = (FOLDER / "index.html").read_text()
SCRIPTS = [path for path in FILES if path.suffix == ".js"]


def test_the_page_weighs_less_than_200_kb_and_all_of_it_is_served() -> None:
    assert sum(path.stat().st_size for path in FILES) < 200_000
    assert set(read_page()) == {path.name for path in FILES}


def test_everything_named_is_there_and_everything_there_is_named() -> None:
    named = set(re.findall(r'(?:href|src)="page/([^"]+)"', HTML)) | {"index.html"}
    for path in SCRIPTS:
        named |= set(re.findall(r'from "\./([^"]+)"', path.read_text()))
    assert named == {path.name for path in FILES}
    # Else a browser would learn of the modules one level of imports after another.
    assert set(re.findall(r'rel="modulepreload" href="page/([^"]+)"', HTML)) == {path.name for path in SCRIPTS} - {"main.js"}


def test_every_element_that_is_asked_for_by_id_is_on_the_page() -> None:
    there = re.findall(r'\bid="([^"]+)"', HTML)
    assert len(there) == len(set(there))
    asked = {name for path in SCRIPTS for name in re.findall(r'\bat\("([^"]+)"\)', path.read_text())}
    assert asked <= set(there)
    assert set(re.findall(r'(?:for|aria-controls|aria-labelledby)="([^"]+)"', HTML)) <= set(there)


def test_nothing_is_inline_and_nothing_comes_from_elsewhere() -> None:
    assert not re.search(r"<style|<script(?![^>]*src=)|\sstyle=|\son\w+=|javascript:", HTML)
    for path in FILES:
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|@import|url\(", text), path.name


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_text_is_never_read_as_markup(path: Path) -> None:
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|\beval\b|new Function", path.read_text())
