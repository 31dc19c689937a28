"""What tests share: real data where there is some, and the command as a user runs it."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from service_process import Forks, Starter

settings.register_profile("hcarec", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("hcarec")

REPOSITORY = Path(__file__).resolve().parent.parent


def maker(name: str) -> Any:
    """Import one of the programs that write pages of the documentation, which find each other beside them."""
    folder = str(REPOSITORY / "docs")
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(name)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Return the folder of real logs, or skip."""
    folder = os.environ.get("HCAREC_DATA")
    if not folder:
        pytest.skip("HCAREC_DATA is not set: no real logs to test on")
    path = Path(folder)
    return path if path.is_absolute() else REPOSITORY / path


@pytest.fixture
def hcarec() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the command in a process of its own; it must never show a traceback."""

    def run(*arguments: str | Path, code: int | None = 0, **kwargs: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "hcarec", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, **kwargs)  # type: ignore[call-overload]
        assert "Traceback" not in done.stderr, done.stderr
        if code is not None:
            assert done.returncode == code, f"exit {done.returncode}: {done.stdout}{done.stderr}"
        return done  # type: ignore[no-any-return]

    return run


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    """Run the command inside this process, quickly; an exception that is not a user's mistake fails the test."""
    from hcarec.cli import main

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hcarec", *map(str, arguments)])
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """Return a process that starts services quickly."""
    if sys.platform != "linux":
        pytest.skip("processes are watched through /proc, which only Linux has")
    with Forks() as made:
        yield made


@pytest.fixture
def starter(forks: Forks, tmp_path: Path) -> Iterator[Starter]:
    """Start services, as processes that can be killed."""
    with Starter(forks, tmp_path) as made:
        yield made


def rows(data: object) -> list[tuple[object, object, object]]:
    """List the (user, item, time) of a prepared set, for comparison."""
    listed = []
    for user in range(data.n_users):  # type: ignore[attr-defined]
        for n in range(data.offsets[user], data.offsets[user + 1]):  # type: ignore[attr-defined]
            time = None if data.times is None else data.times[n].item()  # type: ignore[attr-defined]
            listed.append((data.user_ids[user], data.item_ids[data.items[n]], time))  # type: ignore[attr-defined]
    return listed


def write(path: Path, text: str | bytes | Sequence[str]) -> Path:
    """Write a small file: text, bytes or lines."""
    content = text if isinstance(text, bytes) else (text if isinstance(text, str) else "\n".join(text) + "\n").encode()
    path.write_bytes(content)
    return path
