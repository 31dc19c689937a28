"""A package that is not there is asked for in one line."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

from hcarec.errors import ConfigError
from hcarec.extras import require


def test_a_package_that_is_there_is_returned() -> None:
    assert require("math", "counting") is math


@pytest.mark.parametrize(("extra", "install"), [("torch", "'hcarec[torch]'"), (None, "no_such_package")])
def test_a_missing_package_is_named_with_what_needs_it_and_how_to_get_it(extra: str | None, install: str) -> None:
    with pytest.raises(ConfigError) as raised:
        require("no_such_package", "--fast", extra)
    assert str(raised.value) == f"--fast needs the package no_such_package, which is not installed: pip install {install}"


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("import no_such_package", "No module named 'no_such_package'"),
        ("from math import no_such_name", "cannot import name 'no_such_name'"),
        ("raise OSError('libfast.so: cannot open')", "libfast.so: cannot open"),
    ],
)
def test_a_broken_package_is_not_called_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, fault: str) -> None:
    (tmp_path / "broken_package.py").write_text(content)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError) as raised:
        require("broken_package", "--fast", "torch")
    said = str(raised.value)
    assert said.startswith("--fast needs the package broken_package, which cannot be imported (")
    assert fault in said and said.endswith("): install it again")
    assert "broken_package" not in sys.modules
