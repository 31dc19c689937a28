"""The OpenAPI document is complete and true: what it allows is taken, what it forbids is refused, and nothing breaks the server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis.config import ProjectConfig, ProjectsConfig, SchemathesisConfig

from hcarec import HCAGRU, synthetic
from hcarec.serve.limits import Limits
from hcarec.serve.openapi import document
from hcarec.serve.operations import OPERATIONS, Operation
from http_server import Running
from soak_counts import counting

SCHEMA = document(Limits(), keys=False)
NAMES = [f"{one.method} {one.path}" for one in OPERATIONS]
CAN_BE_WRONG = [f"{one.method} {one.path}" for one in OPERATIONS if one.body is not None or one.query is not None]
"""An id is any text: without a body or a query there is nothing that breaks the schema."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    place = tmp_path_factory.mktemp("server")
    (place / "backups").mkdir()
    HCAGRU(preset="paper", d=4, window_x=2, window_h=2).fit(synthetic(users=30, items=40, mean_length=8), epochs=1, seed=1).save(place / "models" / "model")
    with Running(place / "models" / "model", place / "store.sqlite", backups=place / "backups") as running:
        yield running


def test_the_document_describes_every_operation(server: Running) -> None:
    with server.client() as client:
        written = client.get("/openapi.json").json()
    assert written == SCHEMA
    assert written["openapi"] == "3.1.0"
    assert {f"{method.upper()} {path}" for path, methods in written["paths"].items() for method in methods} == set(NAMES)
    for path, methods in written["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"] and operation["operationId"], (method, path)
            assert {"200", "400", "500"} <= set(operation["responses"]), (method, path)
            for status, response in operation["responses"].items():
                assert response["description"] and (status == "304" or response["content"]), (path, status)
                if status not in ("200", "304"):
                    assert response["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Failure"}
    schemathesis.openapi.from_dict(written).validate()


def test_with_keys_the_document_says_which_scope_is_needed() -> None:
    written = document(Limits(body_bytes=77), keys=True)
    for one in OPERATIONS:
        operation = written["paths"][one.path][one.method.lower()]
        assert operation.get("security") == ([{"key": [one.scope]}] if one.scope else None)
        assert ("401" in operation["responses"]) == bool(one.scope)
    assert "77 bytes" in str(written["paths"]["/v1/events"]["post"]["requestBody"])
    assert written["components"]["securitySchemes"]["key"]["scheme"] == "bearer"


def checked() -> Any:
    """Return the schema with what is accepted: 422 is for rules that a schema cannot say, such as bytes of UTF-8."""
    accepted = {"positive_data_acceptance": {"expected-statuses": ["2xx", "404", "422"]}, "negative_data_rejection": {"expected-statuses": ["4xx"]}}
    project = ProjectConfig.from_dict({"checks": accepted})
    config = SchemathesisConfig(projects=ProjectsConfig(default=project))
    return schemathesis.openapi.from_dict(SCHEMA, config=config)


def explore(server: Running, name: str, examples: int) -> int:
    """Send requests made from the schema, and ones that break it; return how many."""
    method, _, path = name.partition(" ")
    operation = checked()[path][method]
    sent = 0

    @seed(1)
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate], database=None)
    @given(data=st.data())
    def send(data: st.DataObject) -> None:
        nonlocal sent
        modes = schemathesis.GenerationMode
        for mode in (modes.POSITIVE, modes.NEGATIVE) if name in CAN_BE_WRONG else (modes.POSITIVE,):
            case = data.draw(operation.as_strategy(generation_mode=mode))
            sent += 1
            case.call_and_validate(base_url=server.url)

    send()
    return sent


@pytest.mark.parametrize("name", NAMES)
def test_requests_made_from_the_schema(server: Running, name: str) -> None:
    assert explore(server, name, 15) >= (15 if "POST" in name or "{" in name else 1)


@pytest.mark.soak
@pytest.mark.parametrize("one", OPERATIONS, ids=lambda one: one.name)
def test_many_requests_made_from_the_schema(server: Running, one: Operation) -> None:
    with counting(f"schema.{one.name}", True) as counts:
        counts["requests"] = explore(server, f"{one.method} {one.path}", 1000)
        assert counts["requests"] >= (1000 if one.body is not None or "{" in one.path else 1)


@pytest.mark.parametrize("sequences", [pytest.param(3, id="some"), pytest.param(400, id="many", marks=pytest.mark.soak)])
def test_requests_that_follow_from_answers(server: Running, sequences: int) -> None:
    """Send requests made from answers before them, such as an item that was just found."""
    with counting("schema.sequences", sequences > 100) as counts:

        class Followed(checked().as_state_machine()):  # type: ignore[misc]
            def setup(self) -> None:
                """Begin without backups: one of the same name would be refused the second time, and Hypothesis repeats what it has sent."""
                assert server.site.backups is not None
                for left in server.site.backups.iterdir():
                    left.unlink()

            def get_call_kwargs(self, case: Any) -> dict[str, Any]:
                return {"base_url": server.url}

            def after_call(self, response: Any, case: Any) -> None:
                counts["requests"] += 1

        rules = settings(max_examples=sequences, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        Followed.run(settings=rules)
        counts["sequences"] = sequences
        assert counts["requests"] > sequences


def test_the_server_still_answers(server: Running) -> None:
    with httpx.Client(base_url=server.url, verify=False) as client:
        assert client.get("/readyz").status_code == 200
        assert client.post("/v1/recommend", json={"history": ["i01"]}).json()["basis"] == "personal"
