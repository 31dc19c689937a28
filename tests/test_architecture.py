"""The shape of the code: imports point one way, heavy ones are lazy, names are complete."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import hcarec

SOURCE = Path(hcarec.__file__).parent
LAYERS = [
    ("errors", "extras", "atomic", "hardware", "devices"),
    ("compiled_cache", "config", "ids", "settings"),
    ("sequences", "tables", "ties", "metrics"),
    ("ops", "data"),
    ("topk", "terminal_plots", "plots"),
    ("artefact", "protocol", "comparison"),
    ("models",),
    ("evaluation", "recommendation"),
    ("training", "explanation"),
    ("parallel",),
    ("experiments", "serve", "doctor"),
    ("cli",),
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
FREE = ("__init__", "__main__")
REACHES_UP = {("models/base.py", "hcarec.training.trainers")}
"""`Model.fit` is a verb of the model, and what trains stands above the models: the one import that points up."""
FORBIDDEN = {"data": ("torch", "hcarec.ops", "hcarec.models"), "ops": ("polars", "hcarec.data", "hcarec.sequences"), "metrics": ("hcarec",)}
HEAVY = ("torch", "numba", "polars", "matplotlib", "numpy", "pandas", "scipy", "rich.markdown")


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def part(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Collect what a module imports when it runs, lazily or not; what only a type checker sees is left out."""
    tree = ast.parse(path.read_text())
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            found |= {f"hcarec.{alias.name}" for alias in node.names} if module == "hcarec" else {module}
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path: Path) -> None:
    here = part(path)
    if here in FREE:
        return
    for name in imports(path):
        if (path.relative_to(SOURCE).as_posix(), name) in REACHES_UP:
            continue
        if name.startswith("hcarec.") and (there := name.split(".")[1]) in LEVEL and there != here:
            assert LEVEL[there] <= LEVEL[here], f"{path.name} ({here}) imports {name}"
            assert LEVEL[there] < LEVEL[here] or {here, there} != {"ops", "data"}
        assert not any(name == bad or name.startswith(bad + ".") for bad in FORBIDDEN.get(here, ())), f"{here} must not import {name}"


def test_every_module_has_a_layer() -> None:
    assert {part(path) for path in modules()} - set(FREE) <= set(LEVEL)


def test_the_public_names_are_sorted_and_real() -> None:
    assert len(hcarec.__all__) == len(set(hcarec.__all__))  # ruff keeps them sorted
    assert set(hcarec.__all__) == set(hcarec._HOME)
    for name in hcarec.__all__:
        assert getattr(hcarec, name) is not None
    with pytest.raises(AttributeError):
        _ = hcarec.no_such_thing


def test_help_imports_nothing_heavy() -> None:
    code = "import sys, runpy; sys.argv = ['hcarec', '--help']\ntry: runpy.run_module('hcarec', run_name='__main__')\nexcept SystemExit: pass\n" + (
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.strip() == "[]"


def test_training_on_a_gpu_imports_no_compiler() -> None:
    """A machine that lends its GPU may have torch and NumPy alone: what compiles for a CPU or reads logs is imported where it is used."""
    absent = ("numba", "polars", "msgspec", "matplotlib", "rich", "typer")
    code = f"import sys; sys.modules.update(dict.fromkeys({absent!r}))\nimport hcarec.training.minibatch, hcarec.training.loop, hcarec.evaluation"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_no_pickle_anywhere() -> None:
    for path in modules():
        assert not {"pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"} & imports(path), path
        assert "allow_pickle=True" not in path.read_text(), path
