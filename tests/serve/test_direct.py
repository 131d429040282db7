"""The most asked routes, past the framework: the same answers, and the framework's own refusals."""

import json
from pathlib import Path

from fastapi.routing import APIRoute
from tests.serve.conftest import HISTORY, Start, events

from marsrec.serve.direct import DIRECT
from marsrec.serve.endpoints import ROUTERS
from marsrec.serve.endpoints.recommend import RecommendAnswer, UserRecommendations


def test_every_direct_route_is_one_of_the_framework() -> None:
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    known = {(method, route.path, route.endpoint) for route in routes for method in route.methods}
    assert {(route.method, route.path, route.endpoint) for route in DIRECT} <= known


def test_both_ways_give_the_same_answer(folders: dict[str, Path], start: Start) -> None:
    client = start(folders["mars-t"])
    body = json.dumps(
        {"histories": [events(HISTORY), [], events(HISTORY[:1])], "k": 3, "candidates": ["i1", "x", "i9"]}
    )
    answers = [
        client.post("/v1/recommend", content=body, headers={"Content-Type": kind})
        for kind in (
            "application/json",
            "application/json; charset=utf-8",
            "application/some+json",
        )  # the last not direct
    ]
    assert answers[0].json() == answers[1].json() == answers[2].json()
    assert RecommendAnswer.model_validate(answers[0].json()).model_dump() == answers[0].json()
    assert answers[0].headers == answers[2].headers
    shown = client.get("/v1/users/u1/recommendations?k=3").json()
    assert UserRecommendations.model_validate(shown).model_dump() == shown


def test_what_is_not_as_it_must_be_is_refused_by_the_framework(folders: dict[str, Path], start: Start) -> None:
    client = start(folders["mars-t"])
    answer = client.get("/v1/users/u1/recommendations?k=0")
    assert (answer.status_code, answer.json()["error"]["message"]) == (
        422,
        "query.k: Input should be greater than or equal to 1",
    )
    assert client.get("/v1/users/u1/recommendations?kk=1").status_code == 422
    assert client.post("/v1/recommend", content="{", headers={"Content-Type": "application/json"}).status_code == 400
    assert client.get(f"/v1/users/{'x' * 201}/recommendations").status_code == 422
