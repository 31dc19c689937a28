"""What pyproject.toml declares is used, what is used is declared, and what is installed is pinned."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

import hcarec
from conftest import REPOSITORY
from hcarec import doctor
from hcarec.cli.serve import PACKAGES

PLACES = {"docs": ("docs", "benchmarks"), "dev": ("tests", "benchmarks", "docs")}
"""Where the packages of an extra are used; those of other extras, and what is always needed, are used in src."""
OTHER_USES = {
    "httptools": ("src/hcarec/serve/protocol.py", "from uvicorn.protocols.http.httptools_impl import"),
    "zensical": ("docs/make_site.py", '[sys.executable, "-m", "zensical", "build"'),
    "pyarrow": ("benchmarks/prepare.py", 'PANDAS_ENGINES = ("c", "pyarrow")'),
    "pytest-xdist": ("Makefile", "-m pytest -n auto"),
    "ruff": ("Makefile", "-m ruff check"),
    "mypy": ("Makefile", "-m mypy"),
    "build": (".ci/run", "-m build "),
}
"""Packages that are used without an import: the file, and the text in it that runs or selects the package."""
IMPORTED_AS = {"pillow": "PIL"}
"""Packages that are imported by another name than their own."""
LATER_STANDARD = {"compression"}
"""Modules of Python's library that the oldest supported version lacks."""


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    return found


def declared(written: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the names of the packages of each extra, and under "" those that are always needed."""
    groups = {"": written["dependencies"], **written["optional-dependencies"]}
    return {extra: [name for text in texts if (name := Requirement(text).name) != "hcarec"] for extra, texts in groups.items()}


def module_name(package: str) -> str:
    """Return the name that a package is imported by."""
    return IMPORTED_AS.get(package, package.lower().replace("-", "_"))


# -- imports -----------------------------------------------------------------------------------------------------------


def imports(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the dotted names that statements import, with the packages around them; `from a import b` gives `a` and `a.b`, as b may be a module."""
    for node in nodes:
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            yield from accumulate(name.split("."), "{}.{}".format)


def statements(tree: ast.AST, lazy: bool = True) -> Iterator[ast.AST]:
    """Yield the nodes that run, in functions as well if `lazy`; what only a type checker sees is left out."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if not lazy and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        yield node
        yield from statements(node, lazy)


def parsed(*folders: str, root: Path = REPOSITORY) -> Iterator[tuple[Path, ast.Module]]:
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            yield path, ast.parse(path.read_text())


def imported(*folders: str, root: Path = REPOSITORY) -> set[str]:
    """Return the dotted names that the code of some folders imports, lazily or not."""
    return {name for _, tree in parsed(*folders, root=root) for name in imports(statements(tree))}


def required() -> Iterator[tuple[str, str | None]]:
    """Yield the package and the extra of each call of `require` in src that spells them out."""
    for _, tree in parsed("src"):
        for node in statements(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "require" and isinstance(node.args[0], ast.Constant):
                extra = next((ast.literal_eval(one.value) for one in node.keywords if one.arg == "extra"), None)
                yield ast.literal_eval(node.args[0]), extra


# -- what is declared is used ------------------------------------------------------------------------------------------


def unused(written: Mapping[str, Any], root: Path = REPOSITORY) -> list[str]:
    """Return the declared packages that no code imports, runs or selects, each with its extra."""
    found = []
    for extra, packages in declared(written).items():
        names = imported(*PLACES.get(extra, ("src",)), root=root)
        for package in packages:
            path, text = OTHER_USES.get(package, (None, ""))
            used_otherwise = path is not None and text in (root / path).read_text()
            if module_name(package) not in names and not used_otherwise:
                found.append(f"{package} [{extra}]")
    return found


def test_every_declared_package_is_used() -> None:
    assert unused(project()) == [], "declared in pyproject.toml and used by nothing"


def test_every_other_use_is_of_a_declared_package_that_is_not_imported() -> None:
    groups = declared(project())
    for package in OTHER_USES:
        extras = [extra for extra, packages in groups.items() if package in packages]
        assert extras, f"{package} is no longer declared"
        assert all(module_name(package) not in imported(*PLACES.get(extra, ("src",))) for extra in extras), f"{package} is imported: no need to list it"


def test_a_package_that_nothing_uses_is_found(tmp_path: Path) -> None:
    """A project of our own making: imports that count, and mentions that do not."""
    code = {
        "src/a.py": "import numpy as np\ndef f():\n    from backports import zstd\n    import yaml.nodes\n",
        "src/b.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import attrs\nx = 'import ray'  # import faiss\n",
        "tests/test_a.py": "import pytest, optuna\n",
        "docs/make_site.py": "run([sys.executable, '-m', 'other'])\n",
    }
    for name, text in code.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    written = {
        "dependencies": ["numpy>=2", "backports.zstd; python_version < '3.14'", "attrs", "numpy-extras"],
        "optional-dependencies": {"ray": ["ray>=2"], "tune": ["optuna"], "docs": ["zensical"], "dev": ["made-up[ray]", "hcarec[ray]", "pytest", "numpy"]},
    }
    expected = ["attrs []", "numpy-extras []", "ray [ray]", "optuna [tune]", "zensical [docs]", "made-up [dev]", "numpy [dev]"]
    assert unused(written, tmp_path) == expected


# -- what is used is declared ------------------------------------------------------------------------------------------


def undeclared(names: Iterable[str], written: Mapping[str, Any]) -> set[str]:
    """Return which of the names are neither ours, nor Python's, nor those of a declared package."""
    known = {module_name(package) for extra, packages in declared(written).items() if extra not in PLACES for package in packages}
    tops = {name.partition(".")[0] for name in names} - {"hcarec"} - sys.stdlib_module_names - LATER_STANDARD
    return tops - {name.partition(".")[0] for name in known}


def test_whatever_the_package_imports_is_declared() -> None:
    assert undeclared(imported("src"), project()) == set()


def test_an_import_that_is_not_declared_is_found() -> None:
    less = project() | {"dependencies": ["numpy"]}
    assert {"polars", "numba", "llvmlite", "backports"} <= undeclared(imported("src"), less)
    assert undeclared(["json", "hcarec.errors", "pytest.mark"], less) == {"pytest"}, "what only tests may use does not count"


def test_require_names_the_extra_that_the_package_is_in() -> None:
    groups = {extra: {module_name(package) for package in packages} for extra, packages in declared(project()).items()}
    calls = list(required())
    assert {("torch", "torch"), ("redis", "redis"), ("tensorboard", None)} <= set(calls)
    for package, extra in calls:
        if extra is None:
            assert not any(package in packages for packages in groups.values()), f"{package} comes with an extra"
        else:
            assert any(package in groups[name] for name in extra.split(",")), f"{package} is not in the extra {extra}"
    assert set(PACKAGES) <= groups["serve"]


def loaded(start: Iterable[str]) -> set[str]:
    """Return all that is imported at once with some of our modules: other modules of ours, and packages."""
    source = REPOSITORY / "src"
    found, waiting = set(start), list(start)
    while waiting:
        name = waiting.pop()
        for path in (source / f"{name.replace('.', '/')}.py", source / name.replace(".", "/") / "__init__.py"):
            if path.is_file():
                new = set(imports(statements(ast.parse(path.read_text()), lazy=False))) - found
                found |= new
                waiting += [one for one in new if one.startswith("hcarec")]
    return found


@pytest.mark.parametrize("extra", [extra for extra in declared(project()) if extra and extra not in PLACES])
def test_the_command_and_the_public_names_load_no_extra_at_once(extra: str) -> None:
    found = {name.partition(".")[0] for name in loaded({"hcarec.__main__", "hcarec.cli.app", *hcarec._HOME.values()})}
    assert "typer" in found and "numpy" in found
    assert not found & {module_name(package) for package in declared(project())[extra]}


def test_loading_is_followed_through_our_modules() -> None:
    assert "starlette" in {name.partition(".")[0] for name in loaded({"hcarec.serve.server"})}
    assert "torch.nn.functional.logsigmoid" in loaded({"hcarec.ops.reference"})


# -- what is installed is pinned ---------------------------------------------------------------------------------------

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
SYSTEMS = {"Linux": ("linux", "posix"), "Darwin": ("darwin", "posix"), "Windows": ("win32", "nt")}


def pins() -> dict[str, str]:
    """Return the pinned version of each package."""
    lines = [line.partition("==") for line in (REPOSITORY / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    return {canonicalize_name(name): version for name, _, version in lines}


def needs(package: str, extras: Iterable[str]) -> list[Requirement]:
    """Return what a package says that it needs; nothing where it is not installed, as what only another Python or system needs."""
    if package == "hcarec":
        written = project()
        return [Requirement(text) for group in (written["dependencies"], *(written["optional-dependencies"][extra] for extra in extras)) for text in group]
    try:
        return [Requirement(text) for text in metadata.requires(package) or ()]
    except metadata.PackageNotFoundError:
        return []


def installed_for(python: str, system: str) -> set[str]:
    """Return all packages that `make setup` installs or builds with, followed through what each needs there."""
    platform, os_name = SYSTEMS[system]
    place = {"python_version": python, "python_full_version": f"{python}.0", "platform_system": system, "sys_platform": platform, "os_name": os_name}
    builds = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["build-system"]["requires"]
    waiting = [("hcarec", frozenset({"dev"})), *((Requirement(text).name, frozenset[str]()) for text in builds)]
    seen = set(waiting)
    while waiting:
        package, extras = waiting.pop()
        for need in needs(package, extras):
            if need.marker is None or any(need.marker.evaluate(default_environment() | place | {"extra": extra}) for extra in ("", *extras)):
                entry = need.name, frozenset(need.extras)
                waiting += [entry] if entry not in seen else []
                seen.add(entry)
    return {canonicalize_name(package) for package, _ in seen} - {"hcarec"}


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("python", PYTHONS)
def test_whatever_is_installed_is_pinned(python: str, system: str) -> None:
    packages = installed_for(python, system)
    assert {"numpy", "torch", "redis", "pytest", "hatchling"} <= packages
    assert packages - set(pins()) == set(), f"add these to constraints.txt, for Python {python} on {system}"


@pytest.mark.parametrize("python", PYTHONS)
def test_pinned_versions_allow_every_python(python: str) -> None:
    for package in installed_for(python, "Linux"):
        try:
            found = metadata.distribution(package)
        except metadata.PackageNotFoundError:
            continue
        assert Version(f"{python}.0") in SpecifierSet(found.metadata["Requires-Python"] or ""), f"{package} {found.version}"


def test_older_pythons_need_what_newer_ones_do_not() -> None:
    older, newer = installed_for("3.11", "Linux"), installed_for("3.14", "Linux")
    assert {"async-timeout", "backports-zstd"} <= older - newer
    assert "colorama" in installed_for("3.12", "Windows") - installed_for("3.12", "Linux")


def test_the_doctor_looks_for_every_extra() -> None:
    assert set(doctor.USES) == {extra for extra in declared(project()) if extra}
