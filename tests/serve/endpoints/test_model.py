"""Models over HTTP."""

from pathlib import Path

from tests.serve.conftest import HISTORY, Start, assert_same, events

from marsrec import Recommender


def test_two_models_side_by_side(folders: dict[str, Path], start: Start) -> None:
    client = start(folders["mars-t"], folders["gru4rec"])
    client.post("/v1/users/ann/events", json={"events": events(HISTORY)})
    for name in (None, "mars-t", "gru4rec"):
        query = "" if name is None else f"?model={name}"
        library = Recommender.load(folders[name or "mars-t"])
        assert_same(
            client.get(f"/v1/users/ann/recommendations{query}").json()["items"], library.start(HISTORY).recommend()
        )
        answer = client.get(f"/v1/model{query}").json()
        assert answer["models"] == ["mars-t", "gru4rec"]
        assert answer["model"]["name"] == (name or "mars-t")
        assert len(answer["model"]["heads"]) == (0 if name == "gru4rec" else 4)
    assert client.get("/v1/model?model=other").json()["error"]["code"] == "unknown_model"
