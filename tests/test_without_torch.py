"""Everything but mini-batch training and TensorBoard works where torch is not installed."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from hcarec.experiments import machine

WITHOUT_TORCH = """
import json, sys

attempts = set()

class WithoutTorch:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] != "torch":
            return self.finder.find_spec(name, path, target)
        if sys._getframe(2).f_code.co_name != "find_spec":  # importlib.util.find_spec, by which Polars looks and does not import
            attempts.add(name)
        return None

sys.meta_path[:] = map(WithoutTorch, sys.meta_path)

def hcarec(*arguments):
    from hcarec.cli import main
    sys.argv = ["hcarec", *arguments]
    try:
        main()
    except SystemExit as stop:
        return stop.code or 0
    return 0
"""
"""Hide torch as if it were not installed, and note attempts to import it."""


def run(code: str, folder: Path) -> tuple[Any, str]:
    """Run code where torch cannot be imported; return the value of its last line of output, and what went to standard error."""
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH + code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def test_the_main_job_never_asks_for_torch(tmp_path: Path) -> None:
    code = """
codes = [
    hcarec("prepare", "synthetic", "-o", "data"),
    hcarec("train", "data", "-o", "model", "--preset", "paper", "--epochs", "1"),
    hcarec("recommend", "model", "--user", "u0001"),
    hcarec("explain", "model", "--user", "u0001"),
    hcarec("evaluate", "model", "data", "-o", "result.json"),
    hcarec("doctor"),
]
import hcarec.experiments, hcarec.serve.app, hcarec.serve.server
print(json.dumps([codes, sorted(attempts), "torch" in sys.modules]))
"""
    found, said = run(code, tmp_path)
    assert found == [[0] * 6, [], False], said
    assert "ndcg@20" in json.loads((tmp_path / "result.json").read_text())


def test_a_model_that_torch_has_trained_is_used_without_it(tmp_path: Path) -> None:
    from hcarec import synthetic, train

    data = synthetic(users=60, items=50, mean_length=12)
    data.save(tmp_path / "data")
    train(data, tmp_path / "model", model="sasrec", d=8, length=8, copy_window=4, counting=True, scores="cosine", epochs=1, compare=False)
    code = """
codes = [
    hcarec("recommend", "model", "--user", "u01", "--data", "data"),
    hcarec("explain", "model", "--user", "u01", "--data", "data"),
    hcarec("evaluate", "model", "data"),
]
print(json.dumps([codes, sorted(attempts), "torch" in sys.modules]))
"""
    found, said = run(code, tmp_path)
    assert found == [[0] * 3, [], False], said


@pytest.mark.parametrize("attempt", ["import hcarec.ops.reference", "hcarec.extras.require('torch', 'a test', extra='torch')"])
def test_an_attempt_fails_and_is_noticed(tmp_path: Path, attempt: str) -> None:
    code = f"""
import hcarec.errors, hcarec.extras
try:
    {attempt}
except (ModuleNotFoundError, hcarec.errors.ConfigError) as error:
    assert "torch" in str(error)
else:
    raise AssertionError("torch was imported")
print(json.dumps(sorted(attempts)))
"""
    assert run(code, tmp_path)[0] == ["torch"]


def test_a_result_leaves_out_the_version_of_what_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = metadata.version

    def version(name: str) -> str:
        if name == "torch":
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(metadata, "version", version)
    assert machine.describe.__wrapped__()["versions"] == {"numpy": real("numpy"), "numba": real("numba")}
