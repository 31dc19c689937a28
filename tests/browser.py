"""A real browser for the tests of the page: Chromium, driven by Playwright, and watched for all that a page must not do."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome")
# No sandbox, as tests may run as root; and nothing that a browser asks of its makers on its own.
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync", "--disable-background-networking", "--disable-component-update"]
POLICY_WATCH = "addEventListener('securitypolicyviolation', (event) => console.error(`against the policy: ${event.violatedDirective} ${event.blockedURI}`))"
ANIMATIONS_END = """
Promise.allSettled(document.getAnimations().filter((one) => Number.isFinite(one.effect.getComputedTiming().endTime)).map((one) => one.finished))
"""
WAIT = 15_000
"""Milliseconds that something may take to appear; a test never waits that long unless it fails."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start Chromium, or skip with the reason."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install 'hcarec[dev]'")
    pytest.importorskip("axe_playwright_python", reason="axe is not installed: pip install 'hcarec[dev]'")
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    playwright.expect.set_options(timeout=WAIT)
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=found, args=FLAGS)
        yield started
        started.close()


@contextmanager
def watched(
    browser: Browser, url: str, *, width: int = 1280, height: int = 900, scheme: str = "light", motion: str = "no-preference", expected: Sequence[str] = ()
) -> Iterator[Page]:
    """Open a page; at the end nothing was logged as an error but what holds an `expected` text, nothing forbidden or elsewhere was asked for."""
    faults: list[str] = []
    home = url.partition("#")[0]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion=motion)  # type: ignore[arg-type]
    context.set_default_timeout(WAIT)
    context.add_init_script(POLICY_WATCH)
    page = context.new_page()
    page.on("console", lambda said: faults.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: faults.append(f"exception: {error}"))
    page.on("request", lambda request: None if request.url.startswith(home) else faults.append(f"request to elsewhere: {request.url}"))
    page.goto(url)
    yield page
    context.close()
    unexpected = [fault for fault in faults if not any(text in fault for text in expected)]
    assert not unexpected


def findings(page: Page) -> list[str]:
    """Return what axe finds that is serious: the rule, what it says, and where."""
    from axe_playwright_python.sync_playwright import Axe

    # While something fades in, its contrast is that of the moment.
    page.evaluate(ANIMATIONS_END)
    found: list[dict[str, Any]] = Axe().run(page).response["violations"]
    return [f"{one['id']}: {one['help']}: {node['html'][:120]}" for one in found if one["impact"] in ("serious", "critical") for node in one["nodes"]]
