"""The doctor tells the truth, quickly, and never stumbles over what is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from hcarec import doctor, hardware

Command = Callable[..., tuple[int, str, str]]


def test_a_line_each_and_all_is_well(command: Command) -> None:
    code, out, err = command("doctor")
    assert (code, err) == (0, "")
    names = [line.split()[0] for line in out.splitlines()]
    assert {"hcarec", "machine", "GPU", "needed", "[serve]", "downloads", "compiled", "verdict"} <= set(names)
    assert metadata.version("numpy") in out and "everything that hcarec needs is there" in out


def test_json_says_the_same(command: Command) -> None:
    code, out, _ = command("doctor", "--json", "-")
    found = json.loads(out)
    assert code == 0 and found["missing"] == []
    assert found["cores"] >= 1 and found["packages"]["numpy"]["version"] == metadata.version("numpy")
    assert found["extras"]["serve"]["packages"]["starlette"]["fits"] is True


def test_nothing_heavy_is_imported() -> None:
    heavy = ("torch", "numba", "polars", "matplotlib", "numpy")
    run = "import sys; sys.argv = ['hcarec', 'doctor']\nfrom hcarec.cli import main\ntry: main()\nexcept SystemExit: pass\n"
    code = run + f"print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.strip() == "[]"


def without(monkeypatch: pytest.MonkeyPatch, **versions: str | None) -> None:
    """Pretend that packages are missing, or of other versions."""
    real = metadata.version

    def version(name: str) -> str:
        if name in versions:
            if versions[name] is None:
                raise metadata.PackageNotFoundError(name)
            return str(versions[name])
        return real(name)

    monkeypatch.setattr(metadata, "version", version)


def test_a_missing_extra_is_named_with_what_it_is_for(monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    without(monkeypatch, redis=None)
    code, out, _ = command("doctor")
    assert code == 0, "an extra is no must"
    assert "redis is missing; for hcarec serve --store redis://..: pip install 'hcarec[redis]'" in out


def test_torch_is_an_extra(monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    without(monkeypatch, torch=None)
    code, out, _ = command("doctor")
    assert code == 0
    line = next(line for line in out.splitlines() if line.startswith("[torch]"))
    assert line.endswith("torch is missing; for gru, hca-gru and sasrec by the default preset, and hcarec train --tensorboard: pip install 'hcarec[torch]'")
    assert "everything that hcarec needs is there" in out


def test_what_is_needed_and_missing_or_too_old_fails(monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    without(monkeypatch, numba="0.60.0", msgspec=None)
    code, out, _ = command("doctor")
    assert code == 1
    assert "numba is 0.60.0, needed is" in out and "msgspec is missing" in out


def test_caches_are_found_and_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HCAREC_CACHE", str(tmp_path / "downloads"))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "compiled"))
    found = doctor.examine()
    assert found["downloads"] == {"folder": str(tmp_path / "downloads"), "files": 0, "bytes": 0}
    assert found["compiled"] == [{"folder": str(tmp_path / "compiled"), "writable": True, "files": 0, "bytes": 0}]
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads" / "log.csv").write_bytes(b"x" * 1000)
    (tmp_path / "compiled" / "ops_1").mkdir(parents=True)
    (tmp_path / "compiled" / "ops_1" / "kernel.1.nbc").write_bytes(b"x" * 500)
    (tmp_path / "compiled" / "other.txt").write_bytes(b"x")
    found = doctor.examine()
    assert found["downloads"]["bytes"] == 1000
    assert found["compiled"][0]["files"] == 1 and found["compiled"][0]["bytes"] == 500


def test_a_machine_that_tells_little_is_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "memory", lambda: hardware.Memory(None, None))
    monkeypatch.setattr(hardware, "gpus", lambda: ["NVIDIA H200, 143771 MiB"])
    lines = dict(doctor.words(doctor.examine()))
    assert "memory" not in lines["machine"] and lines["GPU"].startswith("NVIDIA H200")


def test_a_graphics_driver_that_hangs_or_fails_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_: Any, **__: Any) -> None:
        raise subprocess.TimeoutExpired("nvidia-smi", 10)

    monkeypatch.setattr(hardware.shutil, "which", lambda _: "/bin/false")
    assert hardware.gpus() == []
    monkeypatch.setattr(hardware.subprocess, "run", hang)
    assert hardware.gpus() == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_offered(shell: str) -> None:
    asked = {"bash": ("COMP_WORDS", "COMP_CWORD"), "zsh": ("_TYPER_COMPLETE_ARGS",), "fish": ("_TYPER_COMPLETE_ARGS", "_TYPER_COMPLETE_FISH_ACTION")}[shell]
    values = {"COMP_WORDS": "hcarec rec", "COMP_CWORD": "1", "_TYPER_COMPLETE_ARGS": "hcarec rec", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    environment = {name: values[name] for name in asked} | {"_HCAREC_COMPLETE": f"complete_{shell}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-m", "hcarec"], capture_output=True, text=True, env=environment)
    assert "recommend" in done.stdout, done.stderr


def test_the_version_is_told_either_way(hcarec: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    assert hcarec("--version").stdout == f"hcarec {metadata.version('hcarec')}\n"
