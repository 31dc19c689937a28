"""The demo runs from end to end, also where nothing can be fetched, and its page answers."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from hcarec import HCAGRU, Markov, synthetic
from hcarec.cli import demo_page
from hcarec.cli.demo import SERVED
from test_without_torch import WITHOUT_TORCH

Process = Callable[..., subprocess.CompletedProcess[str]]


def test_without_a_network_the_synthetic_log_serves(hcarec: Process, tmp_path: Path) -> None:
    offline = {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path),
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_CONFIG_FILE": os.devnull,
        "HCAREC_CACHE": str(tmp_path / "cache"),
    }
    out = tmp_path / "demo"
    done = hcarec("demo", "-o", out, "--port", "0", env={**os.environ, **offline})
    assert "so the synthetic log serves instead" in done.stdout
    for expected in (
        "Health check",
        "HCA-GRU-x5-h5",
        "the default's recipe in a smaller size: d 48, length 50, epochs 8, evaluate_every 2, learning_rate 0.002",
        "--preset modern --set d=48",
        "BPR",
        "Markov",
        "POP",
        "personal",
        "a_h",
        "rank correlation",
        "the page answers at",
        "the service has stopped",
    ):
        assert expected in done.stdout, expected
    for name in SERVED:
        assert (out / name / "model.safetensors").is_file()
    notes = [line for line in done.stderr.partition("nanobind: ")[0].splitlines() if line]  # Triton reports leaks of its own at exit
    expected_notes = ["modern", "counting", "learned the validation events too, in 2 epochs"]
    assert [line.partition(":")[0] for line in notes] == expected_notes, done.stderr
    report = (out / "report.html").read_text()
    for expected in ("Methods compared", "HCA-GRU-x5-h5", "data:image/png", "hcarec recommend"):
        assert expected in report, expected
    assert not re.search(r"(?:src|href)=.https?:", report), "the report loads nothing from elsewhere"


def test_without_torch_it_trains_the_paper_preset_and_says_so(tmp_path: Path) -> None:
    code = (
        WITHOUT_TORCH
        + """
code = hcarec("demo", "-o", "demo", "--data", "synthetic", "--port", "0")
print(json.dumps([code, sorted(attempts)]))
"""
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [0, []]
    assert "with the paper's preset, because torch is not installed: pip install 'hcarec[torch]'" in " ".join(done.stdout.split())
    assert "--model hca-gru --preset paper" in " ".join(done.stdout.split())
    config = json.loads((tmp_path / "demo" / "hca-gru" / "model.json").read_text())["config"]
    assert config["preset"] == "paper"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder as the demo leaves it before the page, of tiny models."""
    out = tmp_path_factory.mktemp("demo")
    data = synthetic(users=40, items=30, mean_length=8)
    data.save(out / "data")
    for folder, kind in zip(SERVED, (HCAGRU, Markov), strict=True):
        settings = {"preset": "paper", "d": 4, "epochs": 1} if kind is HCAGRU else {}
        kind(**settings).fit(data).save(out / folder)
    return out


def test_on_a_terminal_it_serves_until_ctrl_c(trained: Path) -> None:
    ours, theirs = pty.openpty()
    code = f"from pathlib import Path; from hcarec.cli.demo_page import show_page; show_page(Path({str(trained)!r}), 0)"
    quiet = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    process = subprocess.Popen([sys.executable, "-c", code], stdout=theirs, stderr=subprocess.PIPE, env=quiet)
    os.close(theirs)
    try:
        said = ""
        while "Ctrl-C" not in said:
            said += os.read(ours, 4096).decode()
        address = re.search(r"http://127\.0\.0\.1:\d+", said)[0]  # type: ignore[index]
        with urllib.request.urlopen(address, timeout=60) as answer:
            assert b"<title>" in answer.read()
        with urllib.request.urlopen(f"{address}/v1/models", timeout=60) as answer:
            assert answer.read().count(b'"serving"') == 2
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0 and errors == b""
        assert "the service has stopped" in os.read(ours, 4096).decode()
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_a_port_that_is_taken_is_replaced_by_a_free_one() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert demo_page._free(taken.getsockname()[1]) == 0


def test_a_browser_is_opened_only_where_it_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert not demo_page.has_display()
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    assert demo_page.has_display()


def test_a_page_that_does_not_answer_is_an_error(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hcarec.errors import ConfigError

    real = demo_page._get
    monkeypatch.setattr(demo_page, "_get", lambda what: real(what) and b"nothing")
    with pytest.raises(ConfigError, match="the page did not answer"):
        demo_page.show_page(trained, 0)
