"""The page in a real browser, clicked through as a person would: find, add, see why, compare, take back; wide and narrow, light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from browser import browser, findings, watched
from http_server import Running
from page_shop import IMAGE, MAIN, OTHER, SCRIPT, data, item_named, save_models, shop

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ["browser"]

SETTLED = """
Promise.race([
  import("/page/acting.js").then(({ inTurn }) => inTurn(() => {})),
  new Promise((_, fail) => setTimeout(fail, 15000, new Error("something is still going on"))),
])
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("shop")
    save_models(folder)
    with shop(folder, beside=[folder / OTHER]) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[httpx.Client]:
    with server.client() as made:
        yield made


def items(page: Page, where: str = "#list") -> list[str]:
    """Return the ids of a list, as they stand on the page."""
    return page.locator(f"{where} > li").evaluate_all("(rows) => rows.map((row) => row.dataset.item)")  # type: ignore[no-any-return]


def settled(page: Page) -> None:
    """Wait until everything that was asked for is shown."""
    page.evaluate(SETTLED)


def recommended(client: httpx.Client, k: int = 12, **whose: Any) -> list[str]:
    return [one["item"] for one in client.post("/v1/recommend", json={"k": k, **whose}).json()["items"]]


def search(page: Page, text: str) -> None:
    """Find an item by letters of its name and take the first with the keyboard."""
    page.get_by_role("combobox", name="Add an item").fill(text)
    page.locator("#item-list [role=option]").first.wait_for()
    page.keyboard.press("Enter")


# -- the whole story ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 360)])
def test_a_story_from_an_empty_visit_to_two_models(browser: Browser, server: Running, client: httpx.Client, scheme: str, width: int) -> None:
    from playwright.sync_api import expect

    with watched(browser, server.url, width=width, scheme=scheme) as page:
        # An empty visit: the popular items, and users to look at.
        expect(page.locator("#basis")).to_have_text("popular")
        expect(page.locator("#offers .chip").first).to_have_text("anna")
        assert items(page) == recommended(client)
        assert findings(page) == []

        # Items are found by a few letters of their names; each is a step.
        chosen = []
        for title in (data().title(5), data().title(9), data().title(20)):
            search(page, title[:-1])
            settled(page)
            chosen.append(item_named(title))
        expect(page.locator(".card .name")).to_have_text([data().title(5), data().title(9), data().title(20)])
        expect(page.locator("#basis")).to_have_text("visit")
        before = recommended(client, visit=chosen)
        assert items(page) == before

        # What is added in the list goes to the end of the strip, and the list answers; undo restores it exactly.
        page.locator("#list .add").nth(4).click()
        settled(page)
        expect(page.locator(".card")).to_have_count(4)
        assert items(page) == recommended(client, visit=[*chosen, before[4]])
        expect(page.locator("#took")).to_contain_text("of which the server")
        expect(page.locator("#said")).to_contain_text("was added.")
        page.get_by_role("button", name="Undo").click()
        settled(page)
        assert items(page) == before

        # Why: what each event did, and how far the attention agrees, both as the API says.
        page.locator("#list .why-this").nth(2).click()
        settled(page)
        told = client.post("/v1/explain", json={"visit": chosen, "item": before[2]}).json()
        assert page.locator("#why .verdict").inner_text().rstrip(".").lower() == told["verdict"].lower()
        expect(page.locator("#why tbody th")).to_have_text([one["title"] for one in reversed(told["events"])])
        expect(page.locator(".effect:not(:empty)")).to_have_count(3)
        assert findings(page) == []
        page.get_by_role("button", name="Close the explanation").click()
        expect(page.locator("#why")).to_be_hidden()

        # What if: the other model on the same history.
        page.get_by_label("compare with").select_option(OTHER)
        settled(page)
        assert items(page, "#other-list") == recommended(client, visit=chosen, model=OTHER)
        common = len(set(items(page)) & set(items(page, "#other-list")))
        expect(page.locator("#common")).to_have_text(f"{common} of the first 12 are in both lists.")
        if width > 700:
            expect(page.locator("#lines path")).to_have_count(common)
        assert findings(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_users_events_are_stored_and_taken_back(browser: Browser, server: Running, client: httpx.Client) -> None:
    from playwright.sync_api import expect

    with watched(browser, server.url) as page:
        page.get_by_role("combobox", name="Open a user").fill("be")
        page.locator("#user-list [role=option]").first.click()
        expect(page.locator("#whose")).to_have_text("The story of user ben")
        expect(page.locator("#basis")).to_have_text("personal")
        settled(page)
        before, log = items(page), client.get("/v1/users/ben").json()["events"]
        page.locator("#list .add").first.click()
        settled(page)
        now = client.get("/v1/users/ben").json()["events"]
        assert (now[:-1], now[-1]["item"]) == (log, before[0])
        assert now[-1]["event_id"].startswith("page-")
        expect(page.locator("#took")).to_contain_text("Stored in")
        assert items(page) == recommended(client, user="ben")

        # After a reload the page still knows what it may take back, and no more than that.
        page.reload()
        expect(page.locator(".card")).to_have_count(4)
        page.get_by_role("button", name="Undo").click()
        settled(page)
        assert client.get("/v1/users/ben").json()["events"] == log
        assert items(page) == before
        expect(page.get_by_role("button", name="Undo")).to_be_disabled()


def test_a_new_user_begins_with_the_first_event(browser: Browser, server: Running, client: httpx.Client) -> None:
    from playwright.sync_api import expect

    with watched(browser, server.url, expected=["404"]) as page:
        page.get_by_role("combobox", name="Open a user").fill("carla / \u00e9")
        page.keyboard.press("Enter")
        expect(page.locator("#whose")).to_have_text("The story of user carla / \u00e9")
        expect(page.locator("#basis")).to_have_text("popular")
        search(page, data().title(5))
        expect(page.locator("#basis")).to_have_text("personal")
        assert [one["item"] for one in client.get("/v1/users/carla%20%2F%20%C3%A9").json()["events"]] == [item_named(data().title(5))]
        page.get_by_role("button", name="Undo").click()
        expect(page.locator("#basis")).to_have_text("popular")


# -- what the strip shows ----------------------------------------------------------------------------------------------


def test_shades_and_arcs_are_the_attention_of_the_api(browser: Browser, server: Running, client: httpx.Client) -> None:
    from playwright.sync_api import expect

    with watched(browser, f"{server.url}/#user=anna") as page:
        expect(page.locator(".card")).to_have_count(30)
        settled(page)
        steps = client.post("/v1/attention", json={"user": "anna", "last": 30}).json()["steps"]
        shades = page.locator(".card").evaluate_all("(cards) => cards.map((card) => Number(card.style.getPropertyValue('--shade')))")
        last = steps[-1]["hidden"]
        assert shades == [0] * 28 + [pytest.approx(weight / max(0.3, *last), abs=2e-3) for weight in last]
        expect(page.locator(".arc-label")).to_have_text([f"{100 * weight:.0f}%" for weight in [*last, *steps[-1]["inputs"]]])

        # Another step, by the keyboard: its inputs, and the same states as before.
        page.locator(".card").last.focus()
        page.keyboard.press("ArrowLeft")
        expect(page.locator(".card").nth(28)).to_have_attribute("aria-checked", "true")
        expect(page.locator(".card").nth(28)).to_be_focused()
        expect(page.locator(".arc-label")).to_have_text([f"{100 * weight:.0f}%" for weight in [*last, *steps[-2]["inputs"]]])
        page.get_by_text("The weights as numbers").click()
        rows = page.locator(".numbers tbody tr").evaluate_all("(rows) => rows.map((row) => [...row.cells].map((cell) => cell.innerText))")
        assert [row[0] for row in rows] == ["states at n", "inputs at n\u22121", "inputs at n"]
        assert [row[1:] for row in rows] == [
            ["", "", *(f"{weight:.2f}" for weight in last)],
            [*(f"{weight:.2f}" for weight in steps[-2]["inputs"]), ""],
            ["", *(f"{weight:.2f}" for weight in steps[-1]["inputs"])],
        ]

        # The first steps of a long story come when they are asked for.
        page.get_by_role("button", name="10 earlier").click()
        expect(page.locator(".card")).to_have_count(40)
        expect(page.locator(".earlier")).to_be_hidden()


def test_what_lies_before_the_start_is_drawn_and_said(browser: Browser, server: Running, client: httpx.Client) -> None:
    from playwright.sync_api import expect

    item = item_named(data().title(5))
    (step,) = client.post("/v1/attention", json={"visit": [item]}).json()["steps"]
    with watched(browser, f"{server.url}/#history={item}") as page:
        shares = [f"{100 * weight:.0f}%" for row in (step["hidden"], step["inputs"]) for weight in (sum(row[:-1]), row[-1])]
        expect(page.locator(".arc-label")).to_have_text(shares)
        expect(page.locator("#reading")).to_contain_text(f"the time before the start {shares[0]}")
        expect(page.locator(".start")).to_be_visible()


def test_names_that_are_markup_are_shown_as_text(browser: Browser, server: Running) -> None:
    from playwright.sync_api import expect

    with watched(browser, server.url) as page:
        expect(page.locator("#list .name").first).to_have_text(SCRIPT)
        page.get_by_role("combobox", name="Add an item").fill("<img")
        expect(page.locator("#item-list .name").first).to_have_text(IMAGE)
        expect(page.locator("#item-list .aside").first).to_contain_text("<i>things</i>")
        page.keyboard.press("Enter")
        expect(page.locator(".card .name")).to_have_text([IMAGE])
        page.locator(f'#list li[data-item="{item_named(SCRIPT)}"] .add').or_(page.locator("#list .add").first).first.click()
        page.locator("#list .why-this").first.click()
        settled(page)
        assert page.locator("main img, main script").count() == 0
        assert page.locator("section").count() == 5


# -- addresses ---------------------------------------------------------------------------------------------------------


def test_a_view_can_be_shared_by_its_address(browser: Browser, server: Running, client: httpx.Client) -> None:
    from playwright.sync_api import expect

    first, second = item_named(data().title(5)), item_named(data().title(9))
    best = recommended(client, visit=[first, second])[0]
    with watched(browser, f"{server.url}/#history={first},{second}&beside={OTHER}&why={best}") as page:
        expect(page.locator(".card")).to_have_count(2)
        expect(page.locator("#why-title")).to_contain_text(next(data().title(n) for n, item in enumerate(data().item_ids.texts()) if item == best))
        assert items(page, "#other-list") == recommended(client, visit=[first, second], model=OTHER)
        page.locator("#list .add").nth(1).click()
        settled(page)
        address = page.url
        assert f"#history={first},{second}," in address
        page.get_by_role("combobox", name="Open a user").fill("anna")
        page.keyboard.press("Enter")
        expect(page.locator("#basis")).to_have_text("personal")
        assert "#user=anna" in page.url
        page.go_back()
        expect(page.locator(".card")).to_have_count(3)
        assert page.url == address


# -- the models and the service ----------------------------------------------------------------------------------------


def test_models_and_live_figures(browser: Browser, server: Running, client: httpx.Client) -> None:
    from playwright.sync_api import expect

    with watched(browser, server.url) as page:
        expect(page.locator("#serving")).to_have_text("HCA-GRU-x3-h2, 90 items")
        table = page.locator(".models")
        expect(table.get_by_role("row", name="attention over")).to_contain_text("the last 3 inputs and the last 2 states")
        main, other = client.get("/v1/models").json()["models"]
        assert (main["name"], other["name"]) == (MAIN, OTHER)
        expect(table.get_by_role("row", name="seen items")).to_contain_text("kept")
        counted = main["yardsticks"]["models"]["Markov"]["ndcg@20"]
        expect(table.get_by_role("row", name="against counting").get_by_role("cell").first).to_contain_text(f"Markov {100 * counted:.2f}%")
        for metric, label in (("ndcg@20", "NDCG@20"), ("auc", "AUC")):
            expect(table.locator("tr.metric", has_text=label).get_by_role("cell")).to_have_text(
                [f"{100 * one['metrics'][metric]:.2f}%" for one in (main, other)]
            )
        expect(page.locator("#models-caution")).to_contain_text("the same protocol")
        expect(page.locator("#pulse")).to_have_attribute("data-state", "well")
        expect(page.locator("#figures")).to_contain_text(client.get("/v1/status").json()["model"])
        expect(page.locator("#figures .sparkline")).to_have_count(1)


def test_the_service_is_asked_how_it_does_only_while_the_page_is_seen(browser: Browser, server: Running) -> None:
    with watched(browser, server.url) as page:
        page.locator("#pulse[data-state=well]").wait_for()
        page.evaluate("Object.defineProperty(document, 'hidden', { value: true, configurable: true })")
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url) if request.url.endswith("/v1/status") else None)
        page.wait_for_timeout(2500)
        assert asked == []
        with page.expect_request("**/v1/status"):
            page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
