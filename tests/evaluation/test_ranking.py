import pytest
import torch
from torch import Tensor

from marsrec.errors import DataError, SettingsError
from marsrec.evaluation.ranking import Seen, target_ranks, top_k


def naive_rank(scores: list[float], target: int, seen: set[int]) -> float:
    others = [score for item, score in enumerate(scores) if item and item != target and item not in seen]
    return 1 + sum(score > scores[target] for score in others) + sum(score == scores[target] for score in others) / 2


def naive_top(scores: list[float], k: int, allowed: set[int]) -> list[int]:
    ranked = sorted(allowed, key=lambda item: (-scores[item], item))[:k]
    return ranked + [0] * (k - len(ranked))


def compressed(rows: list[list[int]]) -> Seen:
    offsets = torch.tensor([0, *map(len, rows)]).cumsum(0)
    return offsets, torch.tensor([item for row in rows for item in row], dtype=torch.long)


def tied_scores(count: int = 300, catalog: int = 12, dtype: torch.dtype = torch.float32) -> Tensor:
    """Scores on few levels, -inf among them; the users are their own scores."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(-1, 5, (count, catalog + 1), generator=generator).to(dtype)
    scores = scores.masked_fill(scores < 0, -torch.inf)
    scores[:, 0] = 100  # padding would win everywhere
    return scores


def random_seen(count: int = 300, catalog: int = 12) -> list[list[int]]:
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(0, 2 * catalog, (count,), generator=generator)  # with repeated items, and none at all
    return [torch.randint(1, catalog + 1, (int(length),), generator=generator).tolist() for length in lengths]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("masked", [False, True])
def test_ranks_equal_a_naive_implementation_with_ties(dtype, masked):
    scores = tied_scores(dtype=dtype)
    before = scores.clone()
    targets = torch.arange(300) % 12 + 1
    rows = random_seen() if masked else [[] for _ in scores]
    ranks = target_ranks(lambda users: users, scores, targets, seen=compressed(rows) if masked else None)
    expected = [naive_rank(*row) for row in zip(scores.tolist(), targets.tolist(), map(set, rows), strict=True)]
    assert ranks.dtype == torch.float64
    assert ranks.tolist() == expected
    assert torch.equal(scores, before), "the caller's scores were changed"


def test_equal_scores_rank_in_the_middle():
    ranks = target_ranks(lambda users: torch.zeros(len(users), 8), torch.zeros(3, 1), torch.tensor([1, 4, 7]))
    assert ranks.tolist() == [4, 4, 4]


@pytest.mark.parametrize("masked", [False, True])
def test_never_more_scores_than_allowed_and_the_same_ranks(masked):
    sizes = []

    def score(users: Tensor) -> Tensor:
        sizes.append(len(users) * (1 + masked))
        return users

    scores, targets = tied_scores(), torch.ones(300, dtype=torch.long)
    seen = compressed(random_seen()) if masked else None
    few = target_ranks(score, scores, targets, seen=seen, max_scores=130)
    assert max(sizes) == 130 / 13
    assert torch.equal(few, target_ranks(score, scores, targets, seen=seen))
    assert target_ranks(score, scores, targets, seen=seen, max_scores=1).shape == (300,)  # one user always fits


@pytest.mark.parametrize("k", [1, 4, 12, 20])
@pytest.mark.parametrize("candidates", [None, [11, 3, 3, 7]])
@pytest.mark.parametrize("masked", [False, True])
def test_top_k_equals_a_naive_implementation_with_ties(k, candidates, masked):
    scores = tied_scores()
    rows = random_seen() if masked else [[] for _ in scores]
    best_scores, best_items = top_k(
        lambda users: users,
        scores,
        k,
        seen=compressed(rows) if masked else None,
        candidates=None if candidates is None else torch.tensor(candidates),
        max_scores=500,
    )
    for row, seen in enumerate(rows):
        allowed = {item for item in candidates or range(1, 13) if scores[row, item] > -torch.inf} - set(seen)
        items = naive_top(scores[row].tolist(), k, allowed)
        assert best_items[row].tolist() == items
        assert best_scores[row].tolist() == [scores[row, item].item() if item else -torch.inf for item in items]


def test_no_users():
    nobody = torch.zeros(0, 13)
    assert target_ranks(lambda users: users, nobody, torch.zeros(0, dtype=torch.long)).shape == (0,)
    assert [tensor.shape for tensor in top_k(lambda users: users, nobody, 5)] == [(0, 5), (0, 5)]


def test_scores_that_share_memory_can_be_masked():
    popularity = torch.tensor([0.0, 3.0, 2.0, 1.0])
    _, items = top_k(lambda users: popularity.expand(len(users), -1), torch.zeros(2, 1), 2, seen=compressed([[1], [2]]))
    assert items.tolist() == [[2, 3], [1, 3]]


def test_nan_is_an_error_but_not_at_padding():
    scores = tied_scores()
    scores[:, 0] = torch.nan
    ones = torch.ones(300, dtype=torch.long)
    assert target_ranks(lambda users: users, scores, ones).isfinite().all()
    scores[200, 5] = torch.nan
    for rank in (
        lambda: target_ranks(lambda users: users, scores, ones),
        lambda: top_k(lambda users: users, scores, 3),
    ):
        with pytest.raises(DataError, match="user row 200 for item code 5 is NaN"):
            rank()


def test_what_cannot_be_ranked_is_named():
    scores = tied_scores()
    targets = torch.ones(300, dtype=torch.long)
    for wrong in (0, 13):
        targets[250] = wrong
        with pytest.raises(DataError, match=f"target code {wrong} in row 250; item codes go from 1 to 12"):
            target_ranks(lambda users: users, scores, targets)
    with pytest.raises(DataError, match="300 users but targets"):
        target_ranks(lambda users: users, scores, targets[1:])
    with pytest.raises(DataError, match="300 users want 301 offsets of seen items, got 2"):
        target_ranks(lambda users: users, scores, targets, seen=compressed([[1]]))
    with pytest.raises(DataError, match=r"1 users got scores \(300, 13\)"):
        target_ranks(lambda users: scores, scores, targets)
    with pytest.raises(DataError, match="candidate code 0 in row 1"):
        top_k(lambda users: users, scores, 3, candidates=torch.tensor([1, 0]))
    with pytest.raises(SettingsError, match="k=0"):
        top_k(lambda users: users, scores, 0)
