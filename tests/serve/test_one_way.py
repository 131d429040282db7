"""One way to an answer: Python, a live session, the command line and HTTP give the same items, scores and terms."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from fastapi.testclient import TestClient
from tests.serve.conftest import START
from typer.testing import CliRunner

from marsrec import Recommender
from marsrec.cli import app

pytestmark = pytest.mark.filterwarnings("ignore:.*unknown item", "ignore:this model is not on the request clock")

History = list[tuple[str, int]]
SHORT: History = [("i3", START), ("i4", START + 3600), ("i9", START + 3600), ("i5", START + 90_000)]  # two at a time
LONG: History = [(f"i{3 * number % 20}", START + 7000 * number) for number in range(9)]  # the models look at 6
COLD: History = [("tea", START)]
LATER = START + 86_400 * 30


@dataclass
class Ways:
    """All ways to the answers of one saved model."""

    folder: Path
    library: Recommender
    client: TestClient
    users: int = 0

    def python(self, history: History, **options: Any) -> Any:
        return self.library.recommend(histories=history, **options).drop("user").to_dicts()

    def session(self, history: History, **options: Any) -> Any:
        return self.library.start(history).recommend(**options).drop("user").to_dicts()

    def command(self, history: History, **options: Any) -> Any:
        rows = self.run("recommend", *_events(history), *_arguments(options))
        return [{name: value for name, value in row.items() if name != "user"} for row in rows]

    def http(self, history: History, **options: Any) -> Any:
        body = {"history": [{"item": item, "time": time} for item, time in history], **options}
        answer = self.client.post("/v1/recommend", json=body)
        assert answer.status_code == 200, answer.text
        return self.rows(answer.json()["results"][0])

    def stored(self, history: History, **options: Any) -> Any:
        """The same for a new user who has this history in the event store."""
        self.users += 1
        place = f"/v1/users/new-{self.users}"
        events = [{"item": item, "time": time} for item, time in history]
        assert self.client.post(f"{place}/events", json={"events": events}).json()["new"] == len(history)
        return self.rows(self.client.get(f"{place}/recommendations", params=options).json())

    @staticmethod
    def rows(result: Any) -> Any:
        return [{**_of(row, "rank", "item", "score"), "source": result["source"]} for row in result["items"]]

    def run(self, command: str, *arguments: str) -> Any:
        result = CliRunner().invoke(app, [command, str(self.folder), *arguments, "--json"], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)


def _of(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: row[name] for name in names}


def _events(history: History) -> list[str]:
    return [text for item, time in history for text in ("--event", f"{item}@{time}")]


def _arguments(options: dict[str, Any]) -> list[str]:
    arguments = [f"--{name}={options[name]}" for name in ("k", "at") if name in options]
    arguments += [f"--candidate={item}" for item in options.get("candidates", ())]
    return arguments + ["--keep-seen"] * (not options.get("mask_seen", True))


@pytest.fixture(params=["mars-t", "mars-m", "gru4rec"])
def ways(request: pytest.FixtureRequest, folders: dict[str, Path], start: Callable[..., TestClient]) -> Ways:
    folder = folders[request.param]
    return Ways(folder, Recommender.load(folder), start(folder))


def assert_alike(found: Any, expected: Any) -> None:
    """The same items; scores up to rounding, since a recurrent session sums up in another order than a window."""
    assert [_of(row, "rank", "item", "source") for row in found] == [
        _of(row, "rank", "item", "source") for row in expected
    ]
    np.testing.assert_allclose([row["score"] for row in found], [row["score"] for row in expected], atol=2e-4)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"k": 3, "at": LATER},
        {"k": 20, "mask_seen": False},
        {"candidates": ["i7", "i8", "i3", "nothing"]},
    ],
    ids=["defaults", "later", "all items", "candidates"],
)
def test_the_same_items_and_scores(ways: Ways, options: dict[str, Any]) -> None:
    recurrent = ways.library.network.recurrent
    for history in (SHORT, LONG):
        expected = ways.python(history, **options)
        assert expected
        assert {row["source"] for row in expected} == {"model"}
        assert ways.command(history, **options) == expected
        assert ways.http(history, **options) == expected
        session = ways.session(history, **options)
        if not recurrent:
            assert session == expected
        elif history is SHORT:  # of a longer one a session folds all, and a window has the latest
            assert_alike(session, expected)
        if "candidates" not in options:
            assert ways.stored(history, **options) == session


def test_the_same_for_a_user_of_the_log(ways: Ways) -> None:
    expected = ways.library.recommend("u3").drop("user").to_dicts()
    shown = ways.run("recommend", "--user", "u3")
    assert [{name: value for name, value in row.items() if name != "user"} for row in shown] == expected
    session = ways.library.start("u3").recommend().drop("user").to_dicts()
    assert ways.rows(ways.client.get("/v1/users/u3/recommendations").json()) == session
    if not ways.library.network.recurrent:
        assert session == expected


@pytest.mark.parametrize("options", [{}, {"candidates": ["i7", "i8", "nothing"]}], ids=["defaults", "candidates"])
def test_the_same_for_a_cold_history(ways: Ways, options: dict[str, Any]) -> None:
    expected = ways.python(COLD, **options)
    assert {row["source"] for row in expected} == {"popularity"}
    found = [ways.session(COLD, **options), ways.command(COLD, **options), ways.http(COLD, **options)]
    if not options:
        found += [ways.python([]), ways.session([]), ways.http([]), ways.stored(COLD)]
    assert found == [expected] * len(found)


@pytest.mark.parametrize("at", [None, LATER])
def test_the_same_terms_explain_an_item(ways: Ways, at: int | None) -> None:
    for history in (SHORT, LONG):
        explanation = ways.library.explain(history, "i7", at=at)
        shown = ways.run("explain", *_events(history), "--item=i7", *([] if at is None else [f"--at={at}"]))
        assert shown["terms"] == explanation.terms.to_dicts()
        assert (shown["score"], shown["last_state"]) == (explanation.score, explanation.last_state)
        body = {"history": [{"item": item, "time": time} for item, time in history], "explain": True, "at": at}
        answer = ways.client.post("/v1/recommend", json={**body, "candidates": ["i7"], "mask_seen": False}).json()
        (result,) = answer["results"]
        (row,) = result["items"]
        assert row["score"] == pytest.approx(explanation.score, abs=1e-6)
        if explanation.terms.is_empty():
            assert row["explanation"] is None
            continue
        assert row["explanation"]["sentence"] == shown["sentence"] == explanation.sentence()
        assert row["explanation"]["last_state"] == pytest.approx(explanation.last_state, abs=1e-6)
        assert not any(row["explanation"]["earlier"])
        assert_same_terms(result["reading"], row["explanation"]["shares"], explanation.terms)


def assert_same_terms(reading: Any, shares: Any, terms: pl.DataFrame) -> None:
    """The server's rows of events and columns of heads are the rows of an explanation."""
    found = [
        {
            "item": event["item"],
            "time": event["time"],
            "age": event["age"],
            "head": head["head"],
            "half_life": head["half_life"],
            "numbers": [
                event["age_seconds"],
                head["half_life_seconds"],
                head["gate"],
                event["weights"][column],
                shares[place][column],
            ],
        }
        for column, head in enumerate(reading["heads"])
        for place, event in enumerate(reading["events"])
    ]
    expected = [
        {
            **_of(term, "item", "time", "age", "head", "half_life"),
            "numbers": list(_of(term, "age_seconds", "half_life_seconds", "gate", "weight", "share").values()),
        }
        for term in terms.to_dicts()
    ]
    numbers = [np.array([row.pop("numbers") for row in rows], dtype=float) for rows in (found, expected)]
    assert found == expected
    np.testing.assert_allclose(*numbers, rtol=1e-5, atol=1e-6)
