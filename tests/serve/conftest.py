"""Tiny trained models, and a server around them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from fastapi.testclient import TestClient
from tests.synthetic import cyclic_log

from marsrec import Recommender, TrainingSettings
from marsrec.serve.app import create_app
from marsrec.serve.fragments import ItemFragments
from marsrec.serve.histories import OVERHEAD, Sessions
from marsrec.serve.models import Model
from marsrec.serve.settings import ServeSettings
from marsrec.serve.store import Store
from marsrec.serve.worker import JobResult, RecommendJob, work

RECIPES = {
    "mars-t": ("mars-t", {"readout.clock": "request"}),
    "mars-m": ("mars-m", {"readout.clock": "request"}),
    "mars-t, values": ("mars-t", {"readout.values": True}),
    "gru4rec": ("gru4rec", {}),
}
LOG = cyclic_log(users=30, events=10, items=20)
START = 1_700_000_000
HISTORY = [("i3", START), ("i4", START + 3600), ("i5", START + 90_000)]
Start = Callable[..., TestClient]


def train(recipe: str, log: Any = LOG, seed: int = 0) -> Recommender:
    """A model of one epoch, whose weights make events, times and heads differ."""
    model, options = RECIPES[recipe]
    fitted = Recommender(
        model,
        options={"dim": 8, "length": 6, "encoder.layers": 1, **options},
        training=TrainingSettings(epochs=1, targets_per_batch=256),
    )
    fitted.fit(log, progress=False)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in fitted.network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        fitted.network.items.weight.mul_(10)
        fitted.network.items.weight[0] = 0
    return fitted


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Saved models by recipe; tests copy what they change."""
    root = tmp_path_factory.mktemp("models")
    for recipe in RECIPES:
        train(recipe).save(root / recipe)
    return {recipe: root / recipe for recipe in RECIPES}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start servers in this process; they end with the test."""
    running: list[TestClient] = []

    def started(*models: Path, **settings: Any) -> TestClient:
        store = settings.pop("store", str(tmp_path / "events.db"))
        app = create_app(ServeSettings(models=models, store=store, **settings))
        client = TestClient(app, base_url="http://localhost", raise_server_exceptions=False)
        client.__enter__()
        running.append(client)
        return client

    yield started
    for client in running:
        client.__exit__(None, None, None)


@pytest.fixture(params=["mars-t", "mars-m"])
def recommender(request: pytest.FixtureRequest, folders: dict[str, Path]) -> Recommender:
    """One whose sessions keep the latest events, and one whose sessions fold all."""
    return Recommender.load(folders[request.param])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(f"sqlite:///{tmp_path / 'events.db'}", "s")
    yield store
    store.close()


def made(recommender: Recommender, store: Store, sessions: int = 1000) -> Model:
    live = Sessions(recommender, store, sessions * (recommender.start().nbytes + OVERHEAD))
    return Model("model", Path(), recommender, live, 0.0, ItemFragments(recommender.item_ids))


def one(job: RecommendJob) -> JobResult:
    (result,) = work([job])
    assert isinstance(result, JobResult), result
    return result


def events(pairs: list[tuple[str, int]]) -> list[dict[str, object]]:
    return [{"item": item, "time": time} for item, time in pairs]


def assert_same(found: list[dict], expected: pl.DataFrame) -> None:
    assert [row["item"] for row in found] == expected["item"].to_list()
    assert [row["rank"] for row in found] == expected["rank"].to_list()
    np.testing.assert_allclose([row["score"] for row in found], expected["score"], atol=2e-4)
