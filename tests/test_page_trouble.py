"""The page when things are not well: keys, a server that is gone or busy, little to show, less motion; each state says what to do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from browser import browser, findings, watched
from hcarec.serve.keys import make
from http_server import Running
from page_shop import MAIN, OTHER, data, item_named, save_plain, shop

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

__all__ = ["browser"]

COUNT_MOVEMENTS = """() => {
  const animate = Element.prototype.animate;
  window.moved = 0;
  Element.prototype.animate = function (...given) { moved++; return animate.apply(this, given); };
}"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("shop")
    save_plain(made)
    return made


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Running]:
    with shop(folder) as running:
        yield running


def first_add(page: Page) -> None:
    page.locator("#list .add").first.click()


def test_a_key_is_asked_for_and_what_it_may_not_do_is_said(browser: Browser, folder: Path, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    key, better = make(tmp_path / "keys.json", "read"), make(tmp_path / "keys.json", "read,write")
    with (
        Running(folder / MAIN, tmp_path / "store.sqlite", keys=tmp_path / "keys.json") as running,
        watched(browser, running.url, expected=["401", "403", "404"]) as page,
    ):
        expect(page.locator("#key-form")).to_be_visible()
        assert findings(page) == []
        page.get_by_label("API key").fill("wrong")
        page.keyboard.press("Enter")
        expect(page.locator("#key-said")).to_have_text("That key is not known here. Give another one.")
        page.get_by_label("API key").fill(key)
        page.keyboard.press("Enter")
        expect(page.locator("#key-form")).to_be_hidden()
        expect(page.locator("#basis")).to_have_text("popular")
        # Users may not be listed by this key, but opened by their id.
        page.get_by_role("combobox", name="Open a user").fill("dora")
        expect(page.locator("#user-note")).to_contain_text("may not list users")
        page.keyboard.press("Enter")
        expect(page.locator("#whose")).to_have_text("The story of user dora")
        first_add(page)
        expect(page.locator("#trouble")).to_contain_text("This key does not hold the scope write.")
        assert findings(page) == []
        page.get_by_role("button", name="Use another key").click()
        page.get_by_label("API key").fill(better)
        page.keyboard.press("Enter")
        expect(page.locator(".card")).to_have_count(1)
        page.get_by_role("button", name="Empty visit").click()
        expect(page.locator("#trouble")).to_be_hidden()
        first_add(page)
        expect(page.locator("#basis")).to_have_text("visit")
        # The key stays in this tab: not in the address, not in what outlives the tab.
        assert page.evaluate("sessionStorage.length") == 1
        assert key not in page.url and better not in page.url
        assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]


def test_a_server_that_is_gone_is_missed_and_what_failed_is_done_once(browser: Browser, server: Running) -> None:
    from playwright.sync_api import expect

    with watched(browser, f"{server.url}/#user=ben", expected=["ERR_INTERNET_DISCONNECTED"]) as page, server.client() as client:
        expect(page.locator(".card")).to_have_count(3)
        page.context.set_offline(True)
        first_add(page)
        expect(page.locator("#trouble")).to_contain_text("The server does not answer. Start it again with hcarec serve")
        expect(page.locator("#pulse")).to_have_attribute("data-state", "gone")
        assert findings(page) == []
        page.context.set_offline(False)
        expect(page.locator(".card")).to_have_count(4)
        expect(page.locator("#trouble")).to_be_hidden()
        assert len(client.get("/v1/users/ben").json()["events"]) == 4


@pytest.mark.parametrize("path", ["events", "recommend", "attention"])
def test_a_busy_server_is_tried_again_and_the_event_counts_once(browser: Browser, server: Running, path: str) -> None:
    from playwright.sync_api import expect

    def busy(route: Route) -> None:
        body = json.dumps({"error": {"code": "overloaded", "message": "too many requests at once: try again later"}})
        route.fulfill(status=503, headers={"Retry-After": "1"}, content_type="application/json", body=body)

    with watched(browser, f"{server.url}/#user=busy-{path}", expected=["503", "404"]) as page, server.client() as client:
        expect(page.locator("#basis")).to_have_text("popular")
        page.route(f"**/v1/{path}", busy, times=1)
        first_add(page)
        expect(page.locator("#trouble")).to_contain_text("The server is busy.")
        expect(page.locator(".card")).to_have_count(1)
        expect(page.locator("#trouble")).to_be_hidden()
        assert len(client.get(f"/v1/users/busy-{path}").json()["events"]) == 1


def test_one_model_alone_says_how_to_have_two(browser: Browser, server: Running) -> None:
    from playwright.sync_api import expect

    with watched(browser, server.url) as page:
        expect(page.locator("#beside-none")).to_contain_text("hcarec serve MODEL --beside OTHER")
        expect(page.locator("#beside-choice")).to_be_hidden()
        expect(page.locator("#models-caution")).to_contain_text("There are no figures")


def test_a_model_without_attention_says_so_until_another_is_swapped_in(browser: Browser, folder: Path, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    item = item_named(data().title(5))
    with Running(folder / OTHER, tmp_path / "store.sqlite") as running, watched(browser, f"{running.url}/#history={item},{item},no-such-item") as page:
        expect(page.locator(".card")).to_have_count(2)
        expect(page.locator("#reading")).to_contain_text("no attention over its states")
        expect(page.locator("#numbers")).to_be_hidden()
        expect(page.locator(".arc")).to_have_count(0)
        expect(page.locator("#list-notes")).to_have_text("Not in this model's catalogue, so left out: no-such-item.")
        page.locator("#list .why-this").first.click()
        expect(page.locator("#why .verdict")).to_contain_text("no attention")
        expect(page.locator("#why thead th")).to_have_text(["event, newest first", "effect"])

        # Another model, swapped in while the page is open, is noticed.
        with running.client() as client:
            assert client.post("/admin/model", json={"name": MAIN}).status_code == 200
        expect(page.locator("#serving")).to_contain_text("HCA-GRU-x3-h2")
        expect(page.locator("#why thead th")).to_have_text(["event, newest first", "attention", "effect"])


def test_nothing_to_explain_is_said(browser: Browser, server: Running) -> None:
    from playwright.sync_api import expect

    with watched(browser, server.url, expected=["422"]) as page:
        page.locator("#list .why-this").first.click()
        expect(page.locator("#why .verdict")).to_contain_text("nothing to explain")
        expect(page.locator("#trouble")).to_be_hidden()


@pytest.mark.parametrize(("motion", "moves"), [("reduce", False), ("no-preference", True)])
def test_rows_move_unless_less_motion_is_wanted(browser: Browser, server: Running, motion: str, moves: bool) -> None:
    from playwright.sync_api import expect

    with watched(browser, server.url, motion=motion) as page:
        expect(page.locator("#basis")).to_have_text("popular")
        page.evaluate(COUNT_MOVEMENTS)
        first_add(page)
        expect(page.locator(".moved").first).to_be_visible()
        assert (page.evaluate("moved") > 0) == moves


def test_the_search_is_a_combobox(browser: Browser, server: Running) -> None:
    from playwright.sync_api import expect

    with watched(browser, server.url) as page:
        field = page.get_by_role("combobox", name="Add an item")
        field.fill("a")
        expect(field).to_have_attribute("aria-expanded", "true")
        expect(field).to_have_attribute("aria-activedescendant", "item-list-0")
        page.keyboard.press("ArrowUp")
        last = page.locator("#item-list [role=option]").last
        expect(last).to_have_attribute("aria-selected", "true")
        expect(field).to_have_attribute("aria-activedescendant", last.get_attribute("id") or "")
        page.keyboard.press("Escape")
        expect(field).to_have_attribute("aria-expanded", "false")
        expect(field).to_have_value("a")
        page.keyboard.press("Escape")
        expect(field).to_have_value("")
        field.fill("zzzzzz")
        expect(page.locator("#item-note")).to_have_text("No item has these letters in its name or id.")
        page.keyboard.press("Enter")
        expect(page.locator(".card")).to_have_count(0)
