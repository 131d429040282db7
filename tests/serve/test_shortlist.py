"""Ranking through an approximate index: the same answers but for what it misses, and it misses little."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from fastapi.testclient import TestClient

from marsrec.evaluation.ranking import top_k
from marsrec.models import model_settings
from marsrec.nn.model import SequenceModel
from marsrec.serve.shortlist import RECALL, Shortlist

pytest.importorskip("faiss", reason="faiss is not installed")

N_ITEMS, N_USERS, K = 20_000, 64, 10


def network_of(recipe: str) -> tuple[SequenceModel, torch.Tensor]:
    """A model whose items lie in clusters, as trained ones do, and users near some of them."""
    torch.manual_seed(0)
    network = model_settings(recipe, 9.0, options={"dim": 16}).build(N_ITEMS).eval()
    centres = torch.randn(200, 16)
    with torch.no_grad():
        network.items.weight.copy_(centres[torch.randint(200, (N_ITEMS + 1,))] + 0.3 * torch.randn(N_ITEMS + 1, 16))
        if (bias := getattr(network.scorer, "bias", None)) is not None:
            bias.copy_(torch.randn(N_ITEMS + 1))
    return network, centres[torch.randint(200, (N_USERS,))] + torch.randn(N_USERS, 16)


@pytest.mark.parametrize("recipe", ["sasrec", "bert4rec", "core"])  # one of each scorer
def test_finds_what_exact_ranking_finds(recipe: str) -> None:
    network, users = network_of(recipe)
    shortlist = Shortlist.build(network, users)
    assert shortlist.recall >= RECALL
    assert shortlist.searched < shortlist.lists / 2  # else nothing is gained
    with torch.no_grad():
        best = top_k(network.score, users, 3)[1]
        seen = torch.arange(N_USERS + 1) * 3, best.flatten()  # the best of all must not come back
        scores, items = shortlist.top_k(users, K, seen)
        exact_scores, exact = top_k(network.score, users, K, seen=seen)
        found = (exact[:, :, None] == items[:, None, :]).any(2)
        assert found.float().mean() >= RECALL
        assert not (items[:, :, None] == best[:, None, :]).any()
        whole = found.all(1)
        assert torch.equal(items[whole], exact[whole])
        torch.testing.assert_close(scores[whole], exact_scores[whole], rtol=1e-5, atol=1e-5)


def test_who_has_seen_all_that_is_likely_is_ranked_exactly() -> None:
    network, users = network_of("sasrec")
    shortlist = Shortlist.build(network, users)
    likely = top_k(network.score, users[:1], 1000)[1][0]
    for most in (1000, 300, 20):
        seen = torch.tensor([0, most, most]), likely[:most]
        scores, items = shortlist.top_k(users[:2], K, seen)
        exact_scores, exact = top_k(network.score, users[:2], K, seen=seen)
        assert torch.equal(items[0], exact[0])
        torch.testing.assert_close(scores[0], exact_scores[0], rtol=1e-5, atol=1e-5)


def test_equal_scores_go_by_code() -> None:
    network, users = network_of("sasrec")
    with torch.no_grad():
        network.items.weight[1:] = network.items.weight[1:].repeat_interleave(4, 0)[:N_ITEMS]
    shortlist = Shortlist.build(network, users)
    nothing = torch.zeros(N_USERS + 1, dtype=torch.long), torch.zeros(0, dtype=torch.long)
    scores, items = shortlist.top_k(users, K, nothing)
    ties = scores[:, 1:] == scores[:, :-1]
    assert ties.any()
    assert (items[:, 1:] > items[:, :-1])[ties].all()


def test_a_catalog_of_a_handful() -> None:
    torch.manual_seed(0)
    network = model_settings("sasrec", 9.0, options={"dim": 16}).build(5).eval()
    users = torch.randn(3, 16)
    shortlist = Shortlist.build(network, users)
    seen = torch.tensor([0, 1, 1, 6]), torch.tensor([2, 1, 2, 3, 4, 5])
    assert torch.equal(shortlist.top_k(users, K, seen)[1], top_k(network.score, users, K, seen=seen)[1])


@pytest.mark.parametrize("recipe", ["mars-t", "mars-m", "gru4rec"])
def test_a_server_answers_alike(
    start: Callable[..., TestClient], folders: dict[str, Path], tmp_path: Path, recipe: str
) -> None:
    exact = start(folders[recipe])
    index = start(folders[recipe], ann_from=1, store=str(tmp_path / "other.db"))
    told = index.get("/v1/model").json()["model"]["index"]
    assert told["recall"] == 1.0  # twenty items are one list
    assert exact.get("/v1/model").json()["model"]["index"] is None
    for address in ("/v1/users/u3/recommendations?k=5", "/v1/users/u3/recommendations?k=20&explain=true"):
        first, second = (client.get(address).json()["items"] for client in (exact, index))
        assert [row["item"] for row in first] == [row["item"] for row in second]
        assert [row["score"] for row in first] == pytest.approx([row["score"] for row in second], rel=1e-4, abs=1e-5)


def test_smaller_catalogs_have_none(start: Callable[..., TestClient], folders: dict[str, Path]) -> None:
    assert start(folders["mars-t"], ann_from=21).get("/v1/model").json()["model"]["index"] is None
