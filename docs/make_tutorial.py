"""Run the commands of docs/tutorial.md in a scratch folder and put under each what it printed.

python docs/make_tutorial.py [--check]
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent / "tutorial.md"
BLOCK = re.compile(r"```(python|console)\n(.*?)```", re.DOTALL)
ADDRESS = "http://127.0.0.1:8080"
"""Where the page says that the service is; it is run at any free port."""


class Failed(Exception):
    """A command of the page that did not do what the page says."""


def performed(page: str) -> str:
    """Run a page in a scratch folder and return it with the output of each command."""
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch), Shell() as shell:
        return BLOCK.sub(lambda found: f"```{found[1]}\n{shell.run(found[1], found[2])}```", page)


class Shell:
    """What is needed of a shell: the command itself, a service in the background, curl, and three filters."""

    def __init__(self) -> None:
        self._scope: dict[str, Any] = {}
        self._service: subprocess.Popen[str] | None = None
        self._address = ""

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *_: object) -> None:
        if self._service is not None:
            self._service.send_signal(signal.SIGINT)
            self._service.communicate(timeout=60)
            if self._service.returncode:
                raise Failed(f"the service ended with {self._service.returncode}")

    def run(self, kind: str, content: str) -> str:
        """Run a block; return it with fresh output."""
        if kind == "python":
            exec(compile(content, "tutorial", "exec"), self._scope)
            return content
        written = ""
        for line in (line for line in content.splitlines() if line.startswith("$ ")):
            output = self._command(line.removeprefix("$ "))
            written += f"{line}\n" + "".join(f"{one.rstrip()}\n" for one in output.splitlines())
        return written

    def _command(self, line: str) -> str:
        """Run one command; a single filter may follow it."""
        command, _, after = line.partition(" | ")
        words = shlex.split(command)
        if words[-1] == "&":
            return self._begin(words[:-1])
        output = {"hcarec": _hcarec, "curl": self._curl, "head": _head}[words[0]](words[1:])
        return "\n".join(output.splitlines()[-int(after.split()[-1]) :]) if after.startswith("tail -n") else output

    def _begin(self, words: list[str]) -> str:
        """Start the service and return what it says until it is ready."""
        self._service = subprocess.Popen([sys.executable, "-m", *words, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self._service.stdout is not None
        said = ""
        while "Ctrl-C" not in said:
            if not (line := self._service.stdout.readline()):
                raise Failed(f"the service did not start: {said}")
            said += line
        self._address = re.search(r"http://[\d.]+:\d+", said)[0]  # type: ignore[index]
        return said.replace(self._address, ADDRESS)

    def _curl(self, words: list[str]) -> str:
        url = next(word for word in words if word.startswith("localhost"))
        body = words[words.index("-d") + 1].encode() if "-d" in words else None
        headers = dict(words[n + 1].split(": ") for n, word in enumerate(words) if word == "-H")
        with urllib.request.urlopen(urllib.request.Request(self._address + "/" + url.partition("/")[2], body, headers), timeout=60) as answer:
            return answer.read().decode()


def _hcarec(words: list[str]) -> str:
    """Run the command inside this process."""
    from hcarec.cli import main

    out, before = io.StringIO(), sys.argv
    sys.argv = ["hcarec", *words]
    try:
        with contextlib.redirect_stdout(out):
            main()
    except SystemExit as stop:
        if stop.code:
            raise Failed(f"hcarec {shlex.join(words)} ended with {stop.code}: {out.getvalue()}") from None
    finally:
        sys.argv = before
    return out.getvalue()


def _head(words: list[str]) -> str:
    return "\n".join(Path(words[-1]).read_text().splitlines()[: int(words[1])])


# -- comparing ---------------------------------------------------------------------------------------------------------

LOOSE = ("hcarec recommend", "hcarec explain", "curl")
"""Commands whose very words hang on the last bits of a score: of these only the shape is compared."""


def outputs(page: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a page with what must be the same on every machine."""
    for kind, content in BLOCK.findall(page):
        for part in content.split("$ ")[1:] if kind == "console" else ():
            command, _, output = part.partition("\n")
            yield command, _shape(output) if command.startswith(LOOSE) else _skeleton(output)


def _skeleton(text: str) -> str:
    """Mask numbers, drawings and space."""
    masked = re.sub(r"\b[0-9a-f]{12}\b|[+-]?\d[\d,.]*", "0", text)
    return re.sub(r"\s+", " ", re.sub(r"[▀-▟]+", "", masked)).strip()


def _shape(text: str) -> str:
    lines = text.splitlines()
    if len(lines) == 1 and lines[0].startswith("{"):
        return _fields(json.loads(lines[0]))
    return f"{len(lines)} lines"


def _fields(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_fields(one)}" for name, one in sorted(value.items())) + "}"
    return f"[{len(value)} of {_fields(value[0]) if value else ''}]" if isinstance(value, list) else type(value).__name__


if __name__ == "__main__":
    text = PAGE.read_text()
    made = performed(text)
    if "--check" in sys.argv:
        sys.exit("docs/tutorial.md is not what its commands print: run make docs" if list(outputs(text)) != list(outputs(made)) else 0)
    PAGE.write_text(made)
