"""A place for compiled code, for every command and wherever the package lies."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hcarec import compiled_cache


@pytest.fixture
def blocked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave Numba no folder that can be written to, for root neither."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr(compiled_cache, "usual", lambda: (tmp_path / "file" / "ops", tmp_path / "file" / "numba"))


def test_the_usual_places_are_those_of_the_package() -> None:
    assert (compiled_cache.usual()[0].parent / "cpu.py").is_file()


def test_what_is_there_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    assert compiled_cache.ensure_cache() is None
    assert "NUMBA_CACHE_DIR" not in os.environ


@pytest.mark.usefixtures("blocked")
def test_a_folder_of_its_own_is_made_for_this_user_alone() -> None:
    said = compiled_cache.ensure_cache()
    assert said is not None and "NUMBA_CACHE_DIR" in said
    made = Path(os.environ["NUMBA_CACHE_DIR"])
    assert made.is_dir()
    assert made.stat().st_mode & 0o777 == 0o700
    assert compiled_cache.ensure_cache() is None  # what is set stays


@pytest.mark.usefixtures("blocked")
def test_every_command_sees_to_it(command: Callable[..., tuple[int, str, str]]) -> None:
    code, _, err = command("info", "no such folder")
    assert code == 2
    assert err.splitlines()[0].startswith("hcarec: no folder for compiled code")
    assert Path(os.environ["NUMBA_CACHE_DIR"]).is_dir()
