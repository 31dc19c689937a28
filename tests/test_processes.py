"""No process of ours imports from the current folder."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from hcarec import HCAGRU, synthetic

OURS = ("hcarec", "msgspec", "numpy", "polars", "numba", "safetensors", "torch", "typer", "rich", "uvloop", "redis")
COMMAND = "from hcarec.cli import main\nif __name__ == '__main__':\n    main()\n"
"""What the installed command is: its own folder, not the current one, is where Python looks first."""


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """Return a folder with a file for every module that could be imported, which tells when it is."""
    folder = tmp_path / "trap"
    folder.mkdir()
    for name in sys.stdlib_module_names | set(OURS):
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'a').write({name + ' '!r})\nraise ImportError('a trap')\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "command.py").write_text(COMMAND)
    return folder


def executed(trap: Path) -> str:
    path = trap.parent / "executed"
    return path.read_text() if path.exists() else ""


def test_the_trap_works(trap: Path) -> None:
    subprocess.run([sys.executable, "-c", "import colorsys"], cwd=trap, capture_output=True)
    assert executed(trap)


def test_the_service_and_its_writer_do_not(trap: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    HCAGRU(preset="paper", d=4, window_x=2, window_h=2).fit(synthetic(users=30, items=40, mean_length=8), epochs=1, seed=1).save(model)
    command = [sys.executable, str(tmp_path / "bin" / "command.py"), "serve", str(model), "--store", str(tmp_path / "store.sqlite"), "--port", "0"]
    with subprocess.Popen(command, cwd=trap, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            said = ""
            end = time.monotonic() + 120
            while "Ctrl-C" not in said and process.poll() is None and time.monotonic() < end:
                said += process.stdout.readline()
            address = next((word for word in said.split() if word.startswith("http://")), None)
            assert address is not None, (said, process.stderr.read())
            assert httpx.post(f"{address}/v1/events", json={"user": "a", "item": "i01"}).status_code == 200
        finally:
            process.terminate()
    assert executed(trap) == ""


@pytest.mark.parametrize("start", [["-m", "hcarec"], ["command.py"]], ids=["module", "command"])
def test_trainings_at_once_do_not(trap: Path, tmp_path: Path, start: list[str]) -> None:
    synthetic(users=30, items=40, mean_length=8).save(tmp_path / "data")
    start = [part.replace("command.py", str(tmp_path / "bin" / "command.py")) for part in start]
    if start[0] == "-m":  # Python itself has imported from the current folder before our first line: only what comes later is ours
        for name in ("runpy", "pkgutil", "hcarec", *sys.stdlib_module_names):
            (trap / f"{name}.py").unlink(missing_ok=True)
    arguments = ["--model", "gru", "--preset", "paper", "--runs", "2", "--epochs", "1"]
    command = [sys.executable, *start, "train", str(tmp_path / "data"), "-o", str(tmp_path / "models"), *arguments]
    done = subprocess.run(command, cwd=trap, capture_output=True, text=True)
    assert (done.returncode, executed(trap)) == (0, ""), done.stderr
