"""The documentation is complete, true, and its examples run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import hcarec as hcarec_package
from conftest import REPOSITORY, maker

PAGES = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]


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


@pytest.mark.parametrize("name", ["benchmarks", "python", "http"])
def test_pages_that_are_made_are_up_to_date(name: str) -> None:
    assert (REPOSITORY / "docs" / f"{name}.md").read_text() == maker(f"make_{name}").page(), "run make docs"


def test_the_page_of_the_exploration_is_up_to_date() -> None:
    exploration = maker("make_exploration")
    assert exploration.TARGET.read_text() == exploration.page(), "run make docs"


def test_parts_that_are_made_are_up_to_date() -> None:
    made = maker("make_parts").pages()
    assert REPOSITORY / "README.md" in made
    for path, text in made.items():
        assert path.read_text() == text, f"{path.name}: run make docs"


def test_drawings_are_up_to_date() -> None:
    drawings = maker("make_drawings")
    for name, draw in drawings.DRAWINGS.items():
        assert (drawings.IMAGES / name).read_text() == draw(), f"{name}: run make docs"
        assert "prefers-color-scheme: dark" in draw()


def test_every_public_name_is_documented() -> None:
    written = (REPOSITORY / "docs" / "python.md").read_text()
    for name in hcarec_package.__all__:
        assert f"\n### {name}\n" in written, f"{name} is not in docs/python.md"


def test_every_request_is_documented() -> None:
    from hcarec.serve.operations import OPERATIONS

    written = (REPOSITORY / "docs" / "http.md").read_text()
    for one in OPERATIONS:
        assert f"### {one.method} {one.path}\n" in written, f"{one.method} {one.path} is not in docs/http.md: run make docs"


def test_the_tutorial_does_what_it_says() -> None:
    tutorial = maker("make_tutorial")
    page = tutorial.PAGE.read_text()
    written = dict(tutorial.outputs(page))
    assert any(command.startswith("hcarec serve") for command in written)
    assert any(command.startswith("curl") for command in written)
    for command, found in tutorial.outputs(tutorial.performed(page)):
        assert written[command] == found, f"what '{command}' prints has changed: run make docs"


def test_the_readme_is_short() -> None:
    assert len((REPOSITORY / "README.md").read_text().splitlines()) < 150


def test_the_contest_in_the_readme_is_that_of_its_report() -> None:
    def cells(line: str) -> list[str]:
        return [cell.partition("±")[0].strip(" *`") for cell in line.split("|")[1:-1]]

    results = REPOSITORY / "docs" / "results"
    head, _, *rows = map(cells, maker("make_parts").contest(results).partition("\n\n")[0].splitlines())
    methods = head[4:]
    assert {"POP", "Markov", "HCA-GRU, two cores"} <= set(methods) and rows
    report = (results / "contest.md").read_text().partition("**NDCG@10**")[2].partition("**NDCG@10 by log")[0]
    logs, _, *written = map(cells, filter(lambda line: line.startswith("|"), report.splitlines()))
    figures = {(log, line[0]): figure for line in written for log, figure in zip(logs[1:], line[1:], strict=True)}
    for log, _, _, rule, *shown in rows:
        for method, figure in zip(methods, shown, strict=True):
            assert figure == figures[f"{log}, {rule}", method], f"{method} on {log}: write the report anew, then make docs"


def test_the_records_of_the_contest_have_one_configuration_a_method() -> None:
    """Means over seeds are of one recipe."""
    configs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for record in maker("make_parts").contested(REPOSITORY / "docs" / "results").records:
        configs.setdefault((record["data"]["name"], record["method"]), []).append(record["config"])
    assert configs
    for place, found in configs.items():
        assert all(config == found[0] for config in found), place


def test_the_table_of_the_papers_methods_is_the_reports() -> None:
    parts, report, checked = maker("make_parts"), (REPOSITORY / "docs" / "results" / "report.md").read_text(), 0
    for name, found in parts.runs("validation", "ndcg@20").items():
        section = report.partition(f"**{name}, validation**")[2].partition("gain over GRU")[0]
        for method in ("BPR", "GRU", "HCA-GRU-x5-h5"):
            mean = f"{100 * sum(found[method]) / len(found[method]):.3f}"
            rows = [line for line in section.splitlines() if line.startswith(f"| {method} ")]
            assert not rows or any(mean in row for row in rows), f"{name}, {method}: {mean} is not in docs/results/report.md"
            checked += len(rows)
    assert checked >= 20


def test_the_results_stay_small() -> None:
    """Whoever clones the project fetches them."""
    results = REPOSITORY / "docs" / "results"
    files = [path for path in results.rglob("*") if path.is_file() and "work" not in path.relative_to(results).parts]
    assert files and sum(path.stat().st_size for path in files) < 3_000_000
    assert not [path for path in files if path.parent.name == "figures" and path.suffix != ".png"], "each figure once"


def test_what_the_pages_say_about_the_results_is_so() -> None:
    table = maker("make_parts").results()
    best = {row.split("|").index(next(cell for cell in row.split("|") if "**" in cell)) for row in table.splitlines()[2:]}
    assert len(best) == 4, "docs/faq.md says that each of the four methods is best somewhere, and docs/experiments.md that none is everywhere"


def test_the_site_builds_strictly_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("zensical", reason="the extra docs is not installed")
    assert maker("make_site").build(tmp_path / "site") == []
    assert (tmp_path / "site" / "tutorial" / "index.html").is_file()


def test_a_broken_link_or_a_foreign_script_fails_the_site(tmp_path: Path) -> None:
    site = maker("make_site")
    (tmp_path / "index.html").write_text('<a href="nowhere/">x</a><script src="https://example.org/x.js"></script><a href="https://example.org/">y</a>')
    assert [fault.partition(" ")[2] for fault in site.broken(tmp_path)] == ["links to nowhere/, which is not there"]
    assert len(site.elsewhere(tmp_path)) == 1


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def configuration_files(page: Path) -> list[tuple[Path, str]]:
    """Return the configuration files of a page, relative to where its examples run: each begins with its name."""
    return [(Path(name), content) for content, name in re.findall(r"```toml\n(# (\w+\.toml)\n.*?)```", page.read_text(), flags=re.DOTALL)]


def test_configuration_files_are_ones_that_the_examples_use() -> None:
    found = {page.name: [str(file) for file, _ in configuration_files(page)] for page in PAGES}
    assert found["training.md"] == ["gru.toml"]
    for page in PAGES:
        assert page.read_text().count("```toml\n") == len(found[page.name]), f"{page.name}: begin a TOML example with its name, such as # gru.toml"
        for file in found[page.name]:
            assert f'config="{file}"' in page.read_text(), f"{page.name}: no example reads {file}"


def test_every_tensor_is_documented() -> None:
    from hcarec.models import MODELS

    notation = (REPOSITORY / "docs" / "notation.md").read_text()
    others = (REPOSITORY / "docs" / "network.md").read_text().partition("## Tensors of the other models\n")[2]
    for name, kind in MODELS.items():
        for tensor in {one.rpartition(".")[2] for one in kind().shapes(7, 5)}:
            documented = f"`{tensor}`" in notation if name in ("gru", "hca-gru") else f"| `{tensor}` |" in others
            assert documented, f"{name}: {tensor} is in no table"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_python_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for file, content in configuration_files(page):
        file.write_text(content)
    scope: dict[str, Any] = {}
    for example in re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL):
        exec(compile(example, page.name, "exec"), scope)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_shell_examples_name_real_commands_and_options(page: Path) -> None:
    commands = maker("make_commands").commands()
    for line in re.findall(r"^(?: {4}|\$ )hcarec (.+)$", page.read_text(), flags=re.MULTILINE):
        name, *words = re.split(r" [#|&]", line)[0].split()
        assert name in commands, line
        known = {option for parameter in commands[name].params for option in (*parameter.opts, *parameter.secondary_opts)}
        for word in words:
            if word.startswith("-") and word != "-":
                assert word.partition("=")[0] in known, f"{page.name}: {line}"


def test_documented_benchmarks_exist() -> None:
    for page in PAGES:
        for name in re.findall(r"benchmarks/(\w+\.py)", page.read_text()):
            assert (REPOSITORY / "benchmarks" / name).is_file(), f"{page.name} names benchmarks/{name}"
