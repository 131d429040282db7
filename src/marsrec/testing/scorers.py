"""What holds for every scorer."""

import torch

from marsrec.testing.case import ITEMS, Case, Check, close


def scores_are_of_one_user_and_all_items(case: Case) -> None:
    """A model scores all items and the padding before them, the same for a user alone and beside others.

    Return vectors of N users and of all rows of `items`, and a bias per row or None.
    """
    users = case.model(case.prefixes).users
    scores = case.model.score(users)
    assert scores.shape == (len(users), ITEMS + 1), f"{tuple(scores.shape)}"
    close(torch.cat([case.model.score(user) for user in users.split(1)]), scores)


def a_linear_scorer_leaves_vectors_as_they_are(case: Case) -> None:
    """With `linear`, a score is the user vector times the item's vector and nothing else.

    Say `linear = False`, and scores are not split into what each event adds.
    """
    if case.model.scorer.linear:
        users = case.model(case.prefixes).users
        close(case.model.score(users), users @ case.model.items.weight.T)


CHECKS: tuple[Check, ...] = (scores_are_of_one_user_and_all_items, a_linear_scorer_leaves_vectors_as_they_are)
