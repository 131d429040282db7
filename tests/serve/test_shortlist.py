"""Ranking through an approximate index: the same answers but for what it misses, and it misses little."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient

from marsrec import Recommender
from marsrec.errors import DataError
from marsrec.evaluation.ranking import top_k
from marsrec.models import model_settings
from marsrec.nn.model import SequenceModel
from marsrec.serve.models import Models
from marsrec.serve.settings import ServeSettings
from marsrec.serve.shortlist import MAX_SHORT, RECALL, Shortlist
from marsrec.serve.worker import JobResult, RecommendJob, work

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


def test_equal_scores_go_by_code_and_are_as_good_as_each_other() -> None:
    network, users = network_of("sasrec")
    with torch.no_grad():
        network.items.weight[1:] = network.items.weight[1:].repeat_interleave(4, 0)[:N_ITEMS]
    shortlist = Shortlist.build(network, users)
    assert shortlist.recall >= RECALL
    assert shortlist.searched < shortlist.lists / 2
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
    info = index.get("/v1/model").json()["model"]["index"]
    assert (info["lists"], info["searched"]) == (1, 1)  # of all twenty items
    assert info["recall"] >= 0.99  # half precision may miss a place
    assert exact.get("/v1/model").json()["model"]["index"] is None
    for address in ("/v1/users/u3/recommendations?k=5", "/v1/users/u3/recommendations?k=20&explain=true"):
        first, second = (client.get(address).json()["items"] for client in (exact, index))
        assert [row["item"] for row in first] == [row["item"] for row in second]
        assert [row["score"] for row in first] == pytest.approx([row["score"] for row in second], rel=1e-4, abs=1e-5)


def test_histories_out_of_order_or_empty_do_not_matter(folders: dict[str, Path], tmp_path: Path) -> None:
    for change in ("swapped", "empty"):
        recommender = Recommender.load(folders["mars-t"])
        histories = recommender.histories
        assert histories is not None
        times, offsets = np.array(histories.times), np.array(histories.offsets)
        if change == "swapped":
            latest = slice(offsets[1] - 2, offsets[1])  # the two that any model looks at
            times[latest] = times[latest][::-1]
        else:
            offsets[1] = 0
        recommender.histories = replace(histories, times=times, offsets=offsets)
        recommender.save(tmp_path / change)
        models = Models(ServeSettings(models=(tmp_path / change,), ann_from=1))
        assert models.get().shortlist is not None
        models.store.close()


def test_weights_that_are_no_numbers_are_refused_with_an_index_too(folders: dict[str, Path], tmp_path: Path) -> None:
    recommender = Recommender.load(folders["mars-t"])
    with torch.no_grad():
        recommender.network.items.weight[3, 2] = torch.nan
    recommender.save(tmp_path / "model")
    with pytest.raises(DataError, match="some of its weights are not numbers"):
        Models(ServeSettings(models=(tmp_path / "model",), ann_from=1))


def test_long_lists_are_ranked_exactly(monkeypatch: pytest.MonkeyPatch, folders: dict[str, Path]) -> None:
    models = Models(ServeSettings(models=(folders["mars-t"],), store=str(folders["mars-t"]) + "-long.db", ann_from=1))
    model = models.get()

    def never(*_: object) -> None:
        raise AssertionError

    codes, times = np.array([1, 2]), np.array([model.recommender.log_end] * 2)
    short = work([RecommendJob(model, codes=codes, times=times, k=20)])[0]
    monkeypatch.setattr(Shortlist, "top_k", never)
    exact = work([RecommendJob(model, codes=codes, times=times, k=MAX_SHORT + 1)])[0]
    models.store.close()
    assert isinstance(short, JobResult)
    assert isinstance(exact, JobResult)
    np.testing.assert_array_equal(short.answer.codes, exact.answer.codes)


def test_smaller_catalogs_have_none(start: Callable[..., TestClient], folders: dict[str, Path]) -> None:
    assert start(folders["mars-t"], ann_from=21).get("/v1/model").json()["model"]["index"] is None
