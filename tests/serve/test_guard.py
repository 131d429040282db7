"""Tokens, origins, sizes and headers."""

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr

from marsrec.cli import main
from marsrec.errors import SettingsError
from marsrec.serve.guard import Guard
from marsrec.serve.metrics import Metrics
from marsrec.serve.settings import ServeSettings

Start = Callable[..., TestClient]
TOKEN = "a token of some length"


def test_an_address_that_others_reach_needs_a_token() -> None:
    for host in ("0.0.0.0", "192.168.1.4", "::", "example.org"):
        with pytest.raises(SettingsError, match="give a token of at least 16 characters"):
            ServeSettings(models=(Path("model"),), host=host)
        assert ServeSettings(models=(Path("model"),), host=host, token=SecretStr(TOKEN)).host == host
    for host in ("localhost", "127.0.0.1", "127.0.0.2", "::1"):
        assert ServeSettings(models=(Path("model"),), host=host).loopback
    for token in ("short", "x" * 1001, "a token with an é in it", " a token with a space", "a token\nof two lines"):
        for given in (token, SecretStr(token)):
            with pytest.raises(SettingsError, match="16 to 1,000 characters of printable ASCII") as refusal:
                ServeSettings(models=(Path("model"),), token=given)
            assert token not in str(refusal.value)
    assert TOKEN not in repr(ServeSettings(models=(Path("model"),), token=SecretStr(TOKEN)))


def test_models_of_the_same_name_are_refused() -> None:
    with pytest.raises(SettingsError, match="distinguished by their folders' names"):
        ServeSettings(models=(Path("a/model"), Path("b/model")))


def test_the_store_is_beside_the_model_by_default() -> None:
    assert ServeSettings(models=(Path("/a/model"),)).store_url == "sqlite:////a/model.events.db"
    assert ServeSettings(models=(Path("/a/model"),), store="x.db").store_url == "sqlite:///x.db"
    assert ServeSettings(models=(Path("/a/model"),), store="postgresql://h/d").store_url == "postgresql://h/d"


def test_all_but_health_and_page_want_the_token(folders: dict[str, Path], start: Start) -> None:
    client = start(folders["mars-t"], token=TOKEN, host="0.0.0.0")
    for path in ("/v1/model", "/v1/users/u1", "/v1/nothing", "/v1", "/metrics"):
        for headers in ({}, {"Authorization": TOKEN}, {"Authorization": f"Bearer {TOKEN}x"}, {"Authorization": "é"}):
            raw = {name: value.encode() for name, value in headers.items()}
            answer = client.get(path, headers=raw)
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "no_token")
            assert answer.headers["www-authenticate"] == "Bearer"
    good = {"Authorization": f"Bearer {TOKEN}", "Host": "shop.example.org"}
    assert client.get("/v1/model", headers=good).status_code == 200
    assert client.get("/healthz").status_code == client.get("/readyz").status_code == 200


def test_pages_of_other_sites_cannot_use_a_server_without_a_token(folders: dict[str, Path], start: Start) -> None:
    client = start(folders["mars-t"])
    foreign = ("evil.example.org", "", "evil]", "[evil]", "[::1", "[::2]:80", "127.0.0.1.evil.org", "localhost@evil")
    others = (
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},  # another port of this machine
        {"Origin": "http://localhost:9911"},
        {"Origin": "https://localhost"},
        {"Origin": "null"},
    )
    for headers in (*({"Host": host} for host in foreign), *others):
        answer = client.get("/v1/model", headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "foreign")
    for host in ("localhost:8000", "127.0.0.1:8000", "[::1]:8000", "[::1]", "127.0.0.1", "127.0.0.2:8000", "LocalHost"):
        assert client.get("/v1/model", headers={"Host": host}).status_code == 200
        own = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
        assert client.get("/v1/model", headers=own).status_code == 200


def test_a_body_that_is_too_large_is_refused(folders: dict[str, Path], start: Start) -> None:
    client = start(folders["mars-t"], body_bytes=1024)
    for content in (b" " * 1025, (b" " * 500 for _ in range(10))):  # with and without a stated length
        answer = client.post("/v1/recommend", content=content)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
    assert client.post("/v1/recommend", json={"history": [], "candidates": ["i1"] * 160}).status_code == 200


def test_what_is_open_to_anybody_takes_no_body_and_no_place(folders: dict[str, Path], start: Start) -> None:
    client = start(folders["mars-t"], requests=1, token=TOKEN)
    for path in ("/", "/healthz", "/readyz", "/openapi.json", "/static/page.js", "/nothing"):
        for content in (b" ", iter([b" "])):  # with and without a stated length
            answer = client.request("GET", path, content=content)
            assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
    assert guarded(itertools.repeat(b" "), "/healthz", [(b"transfer-encoding", b"chunked")]) == (413, 0)
    guard = client.app.middleware_stack
    while not isinstance(guard, Guard):
        guard = guard.app
    guard.under_way = 1  # as if one were being answered
    try:
        for path in ("/", "/healthz", "/readyz", "/openapi.json"):
            assert client.get(path).status_code == 200
        assert client.get("/v1/model", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 503
        assert guard.under_way == 1
    finally:
        guard.under_way = 0


def guarded(
    chunks: Iterator[bytes], path: str = "/v1/recommend", headers: Sequence[tuple[bytes, bytes]] = ()
) -> tuple[int, int]:
    """The status that a body gets which comes in pieces, and how many of these were taken."""
    taken, status = 0, 0

    async def receive() -> dict[str, object]:
        nonlocal taken
        taken += 1
        if (chunk := next(chunks, None)) is None:
            await asyncio.sleep(60)
        return {"type": "http.request", "body": chunk, "more_body": True}

    async def send(message: dict[str, object]) -> None:
        nonlocal status
        status = status or int(str(message["status"]))

    async def app(*arguments: object) -> None:
        raise AssertionError("the application was reached")

    scope = {"type": "http", "method": "POST", "path": path, "headers": [(b"host", b"localhost"), *headers]}
    guard = Guard(app, ServeSettings(models=(Path("model"),), body_bytes=1024), Metrics())
    asyncio.run(guard(scope, receive, send))
    return status, taken


def test_an_endless_body_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert guarded(itertools.repeat(b" " * 500)) == (413, 3)
    monkeypatch.setattr("marsrec.serve.guard.BODY_SECONDS", 0.05)
    assert guarded(iter([b" "])) == (408, 2)


def test_every_answer_has_a_content_security_policy(folders: dict[str, Path], start: Start) -> None:
    client = start(folders["mars-t"])
    for path in ("/healthz", "/", "/docs", "/nothing", "/v1/model", "/openapi.json"):
        assert client.get(path).headers["content-security-policy"].startswith("default-src 'self';")
        assert client.get(path).headers["x-content-type-options"] == "nosniff"


def test_the_page_is_served_where_there_is_one(
    folders: dict[str, Path], start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "index.html").write_text("<title>marsrec</title>")
    (tmp_path / "page" / "page.js").write_text("export {}")
    (tmp_path / "secret.txt").write_text("secret")
    monkeypatch.setattr("marsrec.serve.app.PAGE", tmp_path / "page")
    client = start(folders["mars-t"], token=TOKEN)
    assert client.get("/").text == "<title>marsrec</title>"  # the page itself wants the token
    assert client.get("/static/page.js").headers["content-type"].startswith("text/javascript")
    assert client.get("/static/../secret.txt").status_code == 404
    assert client.get("/static/%2e%2e/secret.txt").status_code == 404
    assert client.get("/static/none.js").json()["error"]["code"] == "unknown_address"


def test_a_fault_of_the_server_is_answered_without_a_traceback(
    folders: dict[str, Path], start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = start(folders["mars-t"])
    monkeypatch.setattr("marsrec.serve.endpoints.model.model_info", lambda model: 1 / 0)
    answer = client.get("/v1/model")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal")
    assert "division" not in answer.text
    assert "ZeroDivisionError" in caplog.text  # the log says where
    assert "division by zero" not in caplog.text  # a message may quote ids
    assert "content-security-policy" in answer.headers


def test_the_command_takes_all_limits_and_hides_secrets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    served: list[ServeSettings] = []
    monkeypatch.setattr("marsrec.serve.app.serve", served.append)
    monkeypatch.setenv("MARSREC_STORE", "postgresql://marsrec:secret@database/marsrec")
    limits = {"requests": 9, "batch": 8, "batch-wait-ms": 7.0, "body-bytes": 6000, "user-events": 5, "queue": 64}
    options = [text for name, value in limits.items() for text in (f"--{name}", str(value))]
    monkeypatch.setattr("sys.argv", ["marsrec", "serve", "model", *options])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    (settings,) = served
    assert settings.store_url == "postgresql://marsrec:secret@database/marsrec"
    assert {name: getattr(settings, name.replace("-", "_")) for name in limits} == limits
    monkeypatch.setenv("MARSREC_TOKEN", "hunter2")
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    shown = capsys.readouterr()
    assert "a token has 16 to 1,000 characters" in shown.err
    assert "hunter2" not in shown.err + shown.out
