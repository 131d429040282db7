"""Requests made up from the OpenAPI document: no 5xx, and no answer that the document does not describe.

`MARSREC_TEST_CASES` is the number of cases per address, half of them valid and half not; 16 if not given.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import load_all_checks, positive_data_acceptance
from tests.serve.conftest import START

from marsrec.serve.app import create_app
from marsrec.serve.endpoints import ROUTERS
from marsrec.serve.settings import ServeSettings

CASES = int(os.environ.get("MARSREC_TEST_CASES", "16"))
OPERATIONS = sorted(
    f"{method} {route.path_format}"
    for router in ROUTERS
    for route in router.routes
    if isinstance(route, APIRoute)
    for method in route.methods
)
KNOWN = {"user": "u1", "item": "i1"}


@pytest.fixture(scope="module")
def client(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    store = str(tmp_path_factory.mktemp("store") / "events.db")
    app = create_app(ServeSettings(models=(folders["mars-t"], folders["gru4rec"]), store=store))
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
        yield client


def test_the_document_describes_all_addresses(client: TestClient) -> None:
    assert len(OPERATIONS) >= 13
    paths = client.get("/openapi.json").json()["paths"]
    assert sorted(f"{method.upper()} {path}" for path, ways in paths.items() for method in ways) == OPERATIONS
    for ways in paths.values():
        for way in ways.values():
            assert way["summary"]
            assert all(answer["description"] for answer in way["responses"].values())


@pytest.mark.parametrize("operation", [name for name in OPERATIONS if "/v1/" in name])
def test_made_up_requests(client: TestClient, operation: str) -> None:
    load_all_checks()
    schema = schemathesis.openapi.from_dict(client.get("/openapi.json").json())
    method, path = operation.split()
    described = schema[path][method]
    statuses: list[int] = []

    def send(case: Case, known: bool) -> None:
        if known:  # else nearly all would be 404
            case.path_parameters = {name: KNOWN[name] for name in case.path_parameters or {}}
        sent = case.as_transport_kwargs(base_url="http://localhost")
        content = sent.get("data")
        answer = client.request(
            sent["method"],
            sent["url"],
            params=sent.get("params"),
            headers=dict(sent.get("headers") or {}) | {"Host": "localhost"},
            **({"json": sent["json"]} if "json" in sent else {"content": content} if content is not None else {}),
        )
        statuses.append(answer.status_code)
        # A request that the document allows may still be refused for what it says, such as a moment before an event.
        case.validate_response(answer, excluded_checks=[positive_data_acceptance])

    quick = settings(
        max_examples=CASES // 2,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
        quick(given(case=described.as_strategy(generation_mode=mode), known=st.booleans())(send))()
    assert statuses
    assert max(statuses) < 500


def test_what_the_document_allows_is_answered(client: TestClient) -> None:
    """Valid requests that are known to make sense, checked against the document as well."""
    schema = schemathesis.openapi.from_dict(client.get("/openapi.json").json())
    events = [{"item": "i1", "time": START}, {"item": "tea", "time": "2026-01-31T12:00:00Z"}]
    for method, path, address, body in (
        ("POST", "/v1/recommend", "/v1/recommend", {"history": events, "explain": True, "k": 3}),
        ("POST", "/v1/recommend", "/v1/recommend?model=gru4rec", {"histories": [events, []], "explain": True}),
        ("POST", "/v1/users/{user}/events", "/v1/users/ann/events", {"events": events}),
        ("GET", "/v1/users/{user}", "/v1/users/ann", None),
        ("GET", "/v1/users/{user}/recommendations", "/v1/users/ann/recommendations?explain=true", None),
        ("GET", "/v1/items/{item}/similar", "/v1/items/i1/similar", None),
        ("GET", "/v1/model", "/v1/model", None),
    ):
        answer = client.request(method, address, json=body)
        assert answer.status_code == 200, answer.text
        schema[path][method].validate_response(answer)
