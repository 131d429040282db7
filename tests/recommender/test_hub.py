"""Sharing models through huggingface_hub itself, against a small server that answers as the hub does."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.recommender.stand_in import TOKEN, Hub
from tests.synthetic import cyclic_log

import marsrec
from marsrec import Recommender, TrainingSettings
from marsrec.errors import DataError

hub = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed (extra hub)")
constants = pytest.importorskip("huggingface_hub.constants")

LOG = cyclic_log(users=12, events=6, items=8)
HISTORY = [("i3", 1_600_000_000), ("i4", 1_600_003_600)]


@pytest.fixture(scope="module")
def model() -> Recommender:
    training = TrainingSettings(epochs=1)
    return Recommender("mars-t", options={"dim": 8, "length": 8}, training=training).fit(LOG, progress=False)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """A hub of its own for each test, with an empty cache."""
    server = Hub()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    monkeypatch.setattr(constants, "ENDPOINT", server.address)
    template = server.address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_model_comes_back_as_it_was_pushed(model: Recommender, server: Hub) -> None:
    address = model.push_to_hub("anna/shop")
    assert address.startswith(f"{server.address}/anna/shop/commit/")
    back = Recommender.from_hub("anna/shop")
    assert back.recommend(histories=HISTORY, k=5).equals(model.recommend(histories=HISTORY, k=5))
    assert all(
        torch.equal(back.network.state_dict()[name], value) for name, value in model.network.state_dict().items()
    )
    assert server.messages == [f"mars-t, marsrec {marsrec.__version__}"]
    assert server.large.keys()  # weights went the way of large files


def test_nobodys_events_are_uploaded_unless_asked_for(model: Recommender, server: Hub) -> None:
    model.push_to_hub("anna/shop", histories=True)
    assert Recommender.from_hub("anna/shop").recommend("u3", k=2).equals(model.recommend("u3", k=2))
    model.push_to_hub("anna/shop")
    assert sorted(server.files("anna/shop")) == [
        ".gitattributes",
        "README.md",
        "config.json",
        "items.parquet",
        "metrics.json",
        "model.safetensors",
    ]
    assert Recommender.from_hub("anna/shop").histories is None


def test_the_card_tells_how_to_load_it_from_there(model: Recommender, server: Hub) -> None:
    model.push_to_hub("anna/shop")
    text = server.files("anna/shop")["README.md"].decode()
    assert 'Recommender.from_hub("anna/shop")' in text
    card = hub.ModelCard(text)
    assert card.data.library_name == "marsrec"
    assert "mars-t" in card.data.tags
    results = {result.metric_type: result.metric_value for result in card.data.eval_results}
    assert results["NDCG@10"] == pytest.approx(model.metrics["test"]["NDCG@10"], abs=1e-6)


def test_a_card_that_was_edited_there_is_no_damage(model: Recommender, server: Hub) -> None:
    model.push_to_hub("anna/shop")
    server.commit("anna/shop", "main", server.files("anna/shop") | {"README.md": b"---\nlicense: mit\n---\n"})
    assert Recommender.from_hub("anna/shop").name == "mars-t"


def test_revisions_are_kept_apart(model: Recommender, server: Hub) -> None:
    first = model.push_to_hub("anna/shop", revision="v1", message="first").rpartition("/")[2]
    with pytest.raises(DataError, match=r"anna/shop: holds no saved recommender"):
        Recommender.from_hub("anna/shop")
    assert Recommender.from_hub("anna/shop", revision="v1").name == "mars-t"
    assert Recommender.from_hub("anna/shop", revision=first).name == "mars-t"
    with pytest.raises(DataError, match=r"anna/shop@v2: there is no such branch, tag or commit"):
        Recommender.from_hub("anna/shop", revision="v2")


def test_a_private_model(model: Recommender, server: Hub) -> None:
    model.push_to_hub("anna/shop", private=True)
    assert server.private["anna/shop"] == "private"


def test_only_the_files_of_a_model_are_downloaded(model: Recommender, server: Hub, tmp_path: Path) -> None:
    model.push_to_hub("anna/shop")
    server.commit("anna/shop", "main", server.files("anna/shop") | {"evil.py": b"1/0", "pytorch_model.bin": b"\x80"})
    Recommender.from_hub("anna/shop")
    assert not [*tmp_path.rglob("evil.py"), *tmp_path.rglob("pytorch_model.bin")]
    assert not any("evil" in asked or "pytorch" in asked for asked in server.asked)


def test_what_is_damaged_there_is_refused(model: Recommender, server: Hub) -> None:
    model.push_to_hub("anna/shop")
    files = server.files("anna/shop")
    metrics = json.loads(files["metrics.json"]) | {"epochs": 7}
    server.commit("anna/shop", "main", files | {"metrics.json": json.dumps(metrics).encode()})
    with pytest.raises(DataError, match=r"metrics.json: differs from what was saved"):
        Recommender.from_hub("anna/shop")


@pytest.mark.parametrize(
    ("repo", "message"),
    [
        ("anna/missing", r"anna/missing: there is no such model, or it is private"),
        ("no name at all", r"'no name at all': no name of a model on the hub"),
    ],
)
@pytest.mark.usefixtures("server")
def test_what_is_not_there_is_told(repo: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Recommender.from_hub(repo)


def test_pushing_wants_a_token(model: Recommender, server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN.replace("a", "b"))
    with pytest.raises(DataError, match=r"401.*hf auth login"):
        model.push_to_hub("anna/shop")
    assert model.push_to_hub("anna/shop", token=TOKEN)


def test_what_is_in_the_cache_needs_no_hub(model: Recommender, server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    model.push_to_hub("anna/shop")
    Recommender.from_hub("anna/shop")
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert Recommender.from_hub("anna/shop").name == "mars-t"
    with pytest.raises(DataError, match="anna/other: the hub does not answer"):
        Recommender.from_hub("anna/other")
