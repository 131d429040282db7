"""The state of a server over HTTP."""

from pathlib import Path

from tests.serve.conftest import HISTORY, Start, events


def test_health_and_metrics(folders: dict[str, Path], start: Start) -> None:
    client = start(folders["mars-t"])
    assert client.get("/healthz").json() == client.get("/readyz").json() == {"status": "ok"}
    client.post("/v1/users/ann/events", json={"events": events([*HISTORY, HISTORY[0]])})
    client.get("/v1/users/ann/recommendations")
    text = client.get("/metrics").text
    assert 'marsrec_events_total{new="yes"} 3.0' in text
    assert 'marsrec_events_total{new="no"} 1.0' in text
    assert 'marsrec_sessions{model="mars-t"} 1.0' in text
    assert 'marsrec_requests_total{method="GET",route="/v1/users/{user:path}/recommendations",status="200"} 1.0' in text
