"""The documentation is complete, true, and its examples run."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from conftest import REPOSITORY

PAGES = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]


def maker(name: str) -> Any:
    """Import one of the programs that write pages."""
    specification = importlib.util.spec_from_file_location(name, REPOSITORY / "docs" / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_every_command_and_option_is_documented() -> None:
    written = (REPOSITORY / "docs" / "commands.md").read_text()
    for name, command in maker("make_commands").commands().items():
        assert f"## hcarec {name}\n" in written
        assert command.help, f"hcarec {name} has no help"
        section = written.partition(f"## hcarec {name}\n")[2].partition("\n## ")[0]
        for parameter in command.params:
            if parameter.name == "help":
                continue
            assert parameter.help, f"hcarec {name}: {parameter.name} has no help"
            for option in (*parameter.opts, *parameter.secondary_opts) if parameter.param_type_name == "option" else ():
                assert f"`{option}`" in section, f"hcarec {name} {option} is not in docs/commands.md: run make docs"


def test_the_command_page_is_up_to_date() -> None:
    assert (REPOSITORY / "docs" / "commands.md").read_text() == maker("make_commands").page(), "run make docs"


def test_the_page_of_benchmarks_is_what_the_results_say() -> None:
    assert (REPOSITORY / "docs" / "benchmarks.md").read_text() == maker("make_benchmarks").page(), "run make docs"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_python_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    for example in re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL):
        exec(compile(example, page.name, "exec"), scope)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_shell_examples_name_real_commands_and_options(page: Path) -> None:
    commands = maker("make_commands").commands()
    for line in re.findall(r"^ {4}hcarec (.+)$", page.read_text(), flags=re.MULTILINE):
        name, *words = line.partition("#")[0].split()
        assert name in commands, line
        known = {option for parameter in commands[name].params for option in (*parameter.opts, *parameter.secondary_opts)}
        for word in words:
            if word.startswith("-") and word != "-":
                assert word.partition("=")[0] in known, f"{page.name}: {line}"


def test_documented_benchmarks_exist() -> None:
    for page in PAGES:
        for name in re.findall(r"benchmarks/(\w+\.py)", page.read_text()):
            assert (REPOSITORY / "benchmarks" / name).is_file(), f"{page.name} names benchmarks/{name}"
