"""Write docs/http.md from the OpenAPI document that the service itself gives out, so that it is always true.

python docs/make_http.py [--check]
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hcarec.serve.limits import Limits
from hcarec.serve.openapi import document

TARGET = Path(__file__).parent / "http.md"
HEAD = """# HTTP

Written by `make docs` from the document that a running service gives out at `/openapi.json`. What the answers mean, and how to run the service, is
under [serving](serving.md). Any operation may also answer with the errors listed [at the end](#errors).
An *id* is any text of 1 to 512 bytes of UTF-8, percent-encoded where it stands in a path. The scope is what an API key must hold, where the service has keys.
"""
ID = "Any text of at most"
"""How the description of an id begins."""
EVERYWHERE = ("400", "401", "403", "408", "413", "415", "429", "431", "500", "503")
"""Errors that are said once for all operations."""


def page() -> str:
    """Return the whole page."""
    whole = document(Limits(), keys=True)
    operations = [(method, path, one) for path, methods in whole["paths"].items() for method, one in methods.items()]
    parts = [HEAD, "\n## Requests\n", *(_operation(method, path, one) for method, path, one in operations)]
    schemas = whole["components"]["schemas"]
    parts += ["\n## Objects\n", *(_schema(name, schemas[name]) for name in sorted(schemas))]
    return "".join([*parts, *_errors(one for _, _, one in operations)])


def _operation(method: str, path: str, one: dict[str, Any]) -> str:
    scope = ", ".join(one["security"][0]["key"]) if "security" in one else "none"
    lines = [f"\n### {method.upper()} {path}\n\n{one['summary']} Scope: {scope}.\n\n"]
    for parameter in one.get("parameters", ()):
        lines.append(f"- `{parameter['name']}` ({parameter['in']}): {_type(parameter['schema'])}\n")
    if "requestBody" in one:
        lines.append(f"- body: {_content(one['requestBody'])}\n")
    lines.append(f"- answer: {_content(one['responses']['200'])}\n")
    for status, response in one["responses"].items():
        if status not in ("200", *EVERYWHERE):
            lines.append(f"- {status}: {response['description']}\n")
    return "".join(lines)


def _content(holder: dict[str, Any]) -> str:
    (kind, content), *others = holder["content"].items()
    named = _type(content["schema"]) if kind == "application/json" else f"`{kind}`"
    return " or ".join([named, *(f"`{other}`" for other, _ in others)])


def _schema(name: str, schema: dict[str, Any]) -> str:
    about = f"{' '.join(schema['description'].split())}\n\n" if schema.get("description") else ""
    if "properties" not in schema:
        return f"\n### {name}\n\n{about}{_type(schema)}\n"
    required = set(schema.get("required", ()))
    rows = [f"- `{field}`{'' if field in required else ' (optional)'}: {_type(one)}\n" for field, one in schema["properties"].items()]
    return f"\n### {name}\n\n{about}{''.join(rows)}"


def _type(schema: dict[str, Any]) -> str:
    """Say in words what a value is."""
    if schema.get("description", "").startswith(ID):
        return "id"
    limits = {"maxLength": "at most {} characters", "minimum": "at least {}", "maximum": "at most {}", "exclusiveMinimum": "above {}",
              "exclusiveMaximum": "below {}", "minItems": "at least {}", "maxItems": "at most {} of them"}  # fmt: skip
    said = [text.format(f"{schema[key]:,}") for key, text in limits.items() if key in schema]
    if "default" in schema and schema["default"] not in ([], {}):
        said.append(f"by default `{_json(schema['default'])}`")
    about = f": {schema['description']}" if schema.get("description") and "properties" not in schema else ""
    return _kind(schema) + (f", {', '.join(said)}" if said else "") + about


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(_type(one) for one in _distinct(schema[several])))
    if "enum" in schema:
        return " or ".join(f"`{_json(value)}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{_json(schema['const'])}`"
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}" if schema.get("items") else "list"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])} by name"
    names = {"string": "text", "integer": "whole number", "boolean": "true or false"}
    kind = schema.get("type", "any value")
    return " or ".join(names.get(one, one) for one in ([kind] if isinstance(kind, str) else kind))


def _distinct(kinds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out what is said twice: a whole number may also be written 20.0, and a number may be whole."""
    kinds = [one for one in kinds if one.get("multipleOf") != 1]
    numbers = [{**one, "type": "integer"} for one in kinds if one.get("type") == "number"]
    return [one for one in kinds if one not in numbers]


def _json(value: Any) -> str:
    return {True: "true", False: "false", None: "null"}.get(value, str(value)) if isinstance(value, (bool, type(None))) else str(value)


def _errors(operations: Iterable[dict[str, Any]]) -> list[str]:
    """List the errors that many operations share, each with all its reasons."""
    reasons: dict[str, dict[str, None]] = {status: {} for status in EVERYWHERE}
    for one in operations:
        for status in EVERYWHERE:
            if status in one["responses"]:
                reasons[status][one["responses"][status]["description"]] = None
    body = "\nEvery answer other than success is a [Failure](#failure).\n\n"
    return [
        "\n## Errors\n",
        body,
        *(f"- {status}: {' '.join(sorted(texts)) if status != '403' else 'The key does not hold the scope.'}\n" for status, texts in reasons.items() if texts),
    ]


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(0 if TARGET.read_text() == page() else "docs/http.md is not up to date: run make docs")
    TARGET.write_text(page())
