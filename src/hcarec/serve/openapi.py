"""Make the OpenAPI 3.1 document from the operations and their schemas."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from hcarec.serve import answers, schemas
from hcarec.serve.limits import Limits
from hcarec.serve.operations import OPERATIONS, Operation

_REF = "#/components/schemas/{name}"
_FAILURE = {"application/json": {"schema": {"$ref": _REF.format(name="Failure")}}}
_RETRY = {"Retry-After": {"description": "Seconds to wait before trying again.", "schema": {"type": "integer", "minimum": 1}}}
_ABOUT = """Next-item recommendations that know of each event the moment it happens. Every answer other than success is an object
`error` with a `code` and a `message`. Ids in a path are percent-encoded UTF-8."""


def document(limits: Limits, keys: bool) -> dict[str, Any]:
    """Return the document of a server with these limits; with `keys` it says which scope each operation needs."""
    from hcarec import __version__

    types = [kind for one in OPERATIONS for kind in (*_bodies(one), one.query, one.answer) if kind not in (None, Any)]
    _, components = msgspec.json.schema_components([*types, answers.Failure], ref_template=_REF)
    for name in ("Wish", "Question", "Look"):
        components[name]["not"] = {"required": ["user", "history"]}
    for query in {one.query.__name__ for one in OPERATIONS if one.query is not None}:
        del components[query]
    paths: dict[str, Any] = {}
    for one in OPERATIONS:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, limits, keys)
    described: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "hcarec",
            "version": __version__,
            "description": " ".join(_ABOUT.split()),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {"schemas": components},
    }
    if keys:
        described["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer", "description": "An API key made by hcarec serve --make-key."}}
    return described


def _operation(one: Operation, limits: Limits, keys: bool) -> dict[str, Any]:
    written: dict[str, Any] = {"operationId": one.name, "summary": one.summary, "responses": _responses(one, limits, keys)}
    parameters = [_in_path(name) for name in re.findall(r"{(\w+)}", one.path)] + _in_query(one.query)
    if parameters:
        written["parameters"] = parameters
    if one.body is not None:
        said = f"JSON in UTF-8, at most {limits.body_bytes} bytes."
        written["requestBody"] = {"required": True, "description": said, "content": {"application/json": {"schema": _one_of(_bodies(one))}}}
    if keys and one.scope:
        written["security"] = [{"key": [one.scope]}]
    return written


def _responses(one: Operation, limits: Limits, keys: bool) -> dict[str, Any]:
    content = {kind: {"schema": {"type": "string"}} for kind in one.kinds} or {"application/json": {"schema": _schema(one.answer)}}
    failures = {400: "The request is not what is expected; the message says where.", 431: f"The headers have more than {limits.header_bytes} bytes."}
    if one.body is not None:
        failures |= {
            408: f"The body did not come within {limits.receive_seconds:g} seconds.",
            413: f"The body has more than {limits.body_bytes} bytes.",
            415: "The content type is not application/json.",
        }
    if keys and one.scope:
        failures |= {401: "No API key, or none that is known.", 403: f"The key does not hold the scope {one.scope}."}
    elif one.scope:
        failures |= {403: "Without keys the server answers only those who address it as this machine."}
    if one.counted:
        failures |= {429: "More requests a second than one caller may send.", 503: "Too many requests at once."}
    failures |= {500: "The server could not answer; its log says why."} | one.refuses
    responses: dict[str, Any] = {"200": {"description": "Done.", "content": content}}
    for status, reason in sorted(failures.items()):
        said: dict[str, Any] = {"description": reason} if status == 304 else {"description": reason, "content": _FAILURE}
        responses[str(status)] = said | ({"headers": _RETRY} if status in (429, 503) else {})
    return responses


def _bodies(one: Operation) -> tuple[Any, ...]:
    return one.body if isinstance(one.body, tuple) else (one.body,)


def _one_of(kinds: tuple[Any, ...]) -> dict[str, Any]:
    made = [_schema(kind) for kind in kinds]
    return made[0] if len(made) == 1 else {"oneOf": made}


def _schema(kind: Any) -> dict[str, Any]:
    if kind is Any:
        return {"type": "object"}
    (made,), _ = msgspec.json.schema_components([kind], ref_template=_REF)
    return made


def _in_path(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": _schema(schemas.Id)}


def _in_query(kind: Any) -> list[dict[str, Any]]:
    if kind is None:
        return []
    properties = msgspec.json.schema(kind)["$defs"][kind.__name__]["properties"]
    return [{"name": name, "in": "query", "schema": schema} for name, schema in properties.items()]
