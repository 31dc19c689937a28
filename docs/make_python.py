"""Write docs/python.md from the docstrings and signatures of what is public, so that it is always true.

python docs/make_python.py [--check]
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import hcarec

TARGET = Path(__file__).parent / "python.md"
HEAD = """# Python

Written by `make docs` from the docstrings. Everything under *hcarec* is imported from there: `from hcarec import train`. Importing hcarec itself costs nothing;
what is heavy is loaded when it is first used. Errors that are the caller's to solve are `HcarecError`s with a message of one line.
"""
MODULES = {
    "hcarec.recommendation": ("recommend_user", "recommend_all", "unknown_items"),
    "hcarec.explanation": ("Explanation", "Event", "attention", "effects"),
    "hcarec.evaluation": ("Result",),
    "hcarec.models": ("Model", "make"),
    "hcarec.models.base": ("Recommendation",),
    "hcarec.data.split": ("Split", "Part"),
    "hcarec.plots": ("length_and_popularity", "attention"),
    "hcarec.experiments": ("methods", "widths", "complete", "attention", "datasets", "contest", "ablation", "run_trials", "merge", "load_runs"),
}
"""What is worth calling beside the names of the package itself."""
VERBS = ("read_events", "prepare", "synthetic", "split", "train", "evaluate", "compare", "recommend", "explain", "load")
"""The order in which one meets them."""


def page() -> str:
    """Return the whole page."""
    others = sorted(set(hcarec.__all__) - set(VERBS))
    parts = [HEAD, "\n## The verbs\n", *(entry(name, getattr(hcarec, name)) for name in VERBS)]
    parts += ["\n## Models, data, settings\n", *(entry(name, getattr(hcarec, name)) for name in others)]
    for module, names in MODULES.items():
        found = importlib.import_module(module)
        about = inspect.getdoc(found) or ""
        parts += [f"\n## {module}\n\n{_prose(about.partition(chr(10) * 2)[0])}\n", *(entry(name, getattr(found, name)) for name in names)]
    return "".join(parts)


def entry(name: str, thing: Any) -> str:
    """Return the part of one function or class."""
    if inspect.isclass(thing):
        return f"\n### {name}\n\n{_code(name, thing)}{_prose(inspect.getdoc(thing) or '')}\n{_members(thing)}"
    return f"\n### {name}\n\n{_code(name, thing)}{_prose(inspect.getdoc(thing) or '')}\n"


def _members(kind: type) -> str:
    """List the documented fields of a dataclass, and the public methods that a class has of its own."""
    lines = [f"- `{field}`: {text}\n" for field, text in _fields(kind).items()]
    for name, value in vars(kind).items():
        method = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value.fget if isinstance(value, property) else value
        if name.startswith("_") or not inspect.isfunction(method) or not method.__doc__:
            continue
        if any(name in vars(base) for base in kind.__mro__[1:]):  # said where it is first declared
            continue
        parameters, result = _call(method)
        call = "" if isinstance(value, property) else f"({', '.join(parameters)}){result}"
        first = inspect.cleandoc(method.__doc__).partition("\n\n")[0]
        lines.append(f"- `{name}{call}`: {_prose(first)}\n")
    return "\n" + "".join(lines) if lines else ""


def _fields(kind: type) -> dict[str, str]:
    """Return the fields of a dataclass with the text that stands under each."""
    if not dataclasses.is_dataclass(kind):
        return {}
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0].body  # type: ignore[attr-defined]
    found = {}
    for line, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            found[line.target.id] = _prose(inspect.cleandoc(str(after.value.value)))
    return found


def _code(name: str, thing: Any) -> str:
    if inspect.isclass(thing) and issubclass(thing, Exception):
        return ""
    parameters, result = _call(thing)
    line = f"{name}({', '.join(parameters)}){result}"
    if len(line) > 110:
        line = f"{name}(\n" + "".join(f"    {one},\n" for one in parameters) + f"){result}"
    return f"```text\n{line}\n```\n\n"


def _call(thing: Any) -> tuple[list[str], str]:
    """Return the parameters of a thing without `self`, with types as they are written, and what it returns."""
    found = inspect.signature(thing)
    written, starred = [], False
    for one in found.parameters.values():
        if one.name in ("self", "cls"):
            continue
        if one.kind is one.KEYWORD_ONLY and not starred:
            written.append("*")
        starred = starred or one.kind in (one.KEYWORD_ONLY, one.VAR_POSITIONAL)
        stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        annotation = "" if one.annotation is one.empty else f": {_type(one.annotation)}"
        default = "" if one.default is one.empty else f" = {_default(one.default)}"
        written.append(f"{stars}{one.name}{annotation}{default}")
    result = "" if inspect.isclass(thing) or found.return_annotation in (None, "None", found.empty) else f" -> {_type(found.return_annotation)}"
    return written, result


def _type(annotation: Any) -> str:
    text = getattr(annotation, "__forward_arg__", annotation)
    text = text if isinstance(text, str) else inspect.formatannotation(text)
    return re.sub(r"\b(?:hcarec|pathlib|collections|typing)(?:\.\w+)*\.(\w+)", r"\1", text)


def _default(value: Any) -> str:
    return ".." if "object at" in repr(value) or "factory" in repr(value) else repr(value)


def _prose(text: str) -> str:
    """Return a docstring as Markdown; an indented block in it stays one."""
    return text.replace("\n    ", "\n\n    ", 1) if re.search(r"\n\n {4}", text) else text


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(0 if TARGET.read_text() == page() else "docs/python.md is not up to date: run make docs")
    TARGET.write_text(page())
