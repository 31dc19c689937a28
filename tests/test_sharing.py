"""Processes that share a GPU: a service of this program alone, or none, and never one left behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hcarec import sharing

CONTROL = """#!/bin/sh
if [ "$1" = -d ]; then echo started >> "$LOG"; exit {code}; fi
read word; echo "$word" >> "$LOG"
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a program in the place of MPS that writes down what it is told; no process tries a card."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.delenv(sharing.PIPES, raising=False)
    monkeypatch.setattr(sharing, "TRY", "import os; assert os.path.isdir(os.environ['CUDA_MPS_PIPE_DIRECTORY'])")
    return tmp_path / "log"


def install(log: Path, code: int) -> None:
    program = log.parent / sharing.CONTROL
    program.write_text(CONTROL.format(code=code))
    program.chmod(0o755)


def test_a_service_is_started_and_ended(log: Path) -> None:
    install(log, 0)
    with sharing.card() as how:
        assert how == "by MPS" and Path(os.environ[sharing.PIPES]).is_dir()
        assert log.read_text() == "started\n"
    assert log.read_text() == "started\nquit\n" and sharing.PIPES not in os.environ


def test_a_service_is_ended_after_an_error_too(log: Path) -> None:
    install(log, 0)
    with pytest.raises(KeyError), sharing.card():
        raise KeyError
    assert log.read_text() == "started\nquit\n" and sharing.PIPES not in os.environ


@pytest.mark.parametrize("broken", ["service", "card"])
def test_a_service_that_does_not_work_is_not_used(broken: str, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(log, 1 if broken == "service" else 0)
    if broken == "card":
        monkeypatch.setattr(sharing, "TRY", "raise SystemExit(1)")
    with sharing.card() as how:
        assert how == "in turns, because MPS does not work here" and sharing.PIPES not in os.environ
        assert log.read_text() == "started\nquit\n"


def test_without_mps_they_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(sharing.PIPES, raising=False)
    with sharing.card() as how:
        assert how == "in turns, because nvidia-cuda-mps-control is not installed"


def test_a_service_that_runs_already_is_used(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(log, 0)
    monkeypatch.setenv(sharing.PIPES, "/somewhere")
    with sharing.card() as how:
        assert how == "by the MPS of CUDA_MPS_PIPE_DIRECTORY"
    assert not log.exists() and os.environ[sharing.PIPES] == "/somewhere"
