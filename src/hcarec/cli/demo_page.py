"""The end of the demo: serve the page, open it where there is a display, or only check that it answers."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import urllib.request
import webbrowser
from pathlib import Path
from typing import Any

from hcarec.cli.console import console
from hcarec.cli.serve import require_server
from hcarec.errors import ConfigError

HOST = "127.0.0.1"
STORE = "store.sqlite"


def show_page(out: Path, port: int) -> None:
    """Serve the demo's models until Ctrl-C; without a terminal check that the page answers, and stop."""
    from hcarec.cli.demo import SERVED

    try:
        require_server("the page")
    except ConfigError as error:  # the demo has done the rest
        console().print(f"{error}, then run this command")
        return
    from hcarec.serve.server import Settings, run

    for left in out.glob(f"{STORE}*"):  # of an earlier demo
        left.unlink()
    model, *beside = (out / name for name in SERVED)
    settings = Settings(model, str(out / STORE), data=out / "data", host=HOST, port=_free(port), log="errors", beside=tuple(beside))
    page = Page(checking=not sys.stdout.isatty())
    with open(out / "service.log", "w", encoding="utf-8") as log, contextlib.redirect_stderr(log):
        run(settings, page.started)
    page.ended()


def _free(port: int) -> int:
    """Return the port, or 0 for any free one where it is taken."""
    from hcarec.serve.server import bind

    try:
        bind(HOST, port).close()
    except ConfigError:
        if not 0 <= port <= 65535:
            raise
        return 0
    return port


class Page:
    """What is done once the service answers."""

    def __init__(self, checking: bool) -> None:
        self._checking, self._fault = checking, ""

    def started(self, _: Any, address: str) -> None:
        """Say where the page is, and open or check it beside the service."""
        if self._checking:
            threading.Thread(target=self._check, args=(address,), daemon=True).start()
            return
        console().print(f"the page is at {address}; Ctrl-C ends the demo", style="bold")
        if has_display():
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

    def ended(self) -> None:
        """Say that it is over; a page that did not answer is an error."""
        if self._fault:
            raise ConfigError(f"the page did not answer: {self._fault}")
        console().print("the service has stopped")

    def _check(self, address: str) -> None:
        """Ask for the page and a recommendation, then end the service as Ctrl-C would."""
        try:
            page = _get(f"{address}/")
            body = json.dumps({"k": 1}).encode()
            asked = urllib.request.Request(f"{address}/v1/recommend", body, {"Content-Type": "application/json"})
            found = json.loads(_get(asked))["items"]
            if b"<title>" not in page or not found:
                self._fault = "what came is not the page"
            else:
                console().print(f"the page answers at {address} ({len(page):,} bytes); there is no terminal, so the demo ends here")
        except (OSError, ValueError, KeyError) as error:
            self._fault = str(error)
        finally:
            os.kill(os.getpid(), signal.SIGINT)


def _get(what: Any) -> bytes:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(what, timeout=60) as answer:
        content: bytes = answer.read()
    return content


def has_display() -> bool:
    """Say whether a browser would be seen."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
