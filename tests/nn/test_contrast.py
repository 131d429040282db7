"""Contrast and distance of spectra against their definitions, row by row."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from marsrec.data.batches import Batch
from marsrec.nn.encoders.frequency import FrequencySettings
from marsrec.nn.encoders.transformer import TransformerSettings
from marsrec.nn.model import SequenceModel
from marsrec.nn.objectives.contrast import ContrastSettings
from marsrec.nn.objectives.next_item import NextItemSettings
from marsrec.nn.readouts.last import Last
from marsrec.nn.scorers import Dot

ITEMS = 9


def model_of(dropout: float = 0.0, causal: bool = False) -> SequenceModel:
    torch.manual_seed(0)
    kind = TransformerSettings if causal else FrequencySettings
    encoder = kind(inner=8, dropout=dropout).build(4, 6)
    return SequenceModel(ITEMS, 4, encoder, Last(), Dot(), item_std=1.0).double()


def prefixes(lengths: list[int], seed: int, targets: list[int] | None = None) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    L, n = max(lengths), torch.tensor(lengths)
    inside = torch.arange(L) < n[:, None]
    items = torch.randint(1, ITEMS + 1, (len(n), L), generator=generator) * inside
    goals = torch.randint(1, ITEMS + 1, (len(n),), generator=generator) if targets is None else torch.tensor(targets)
    at_end = torch.arange(L) == n[:, None] - 1
    return Batch(items, torch.zeros_like(items), n, goals[:, None] * at_end, torch.zeros_like(items))


def naive_info_nce(one: Tensor, other: Tensor, temperature: float, goals: list[int] | None = None) -> float:
    views, total, B = [*one, *other], 0.0, len(one)
    for i, view in enumerate(views):
        partner = (i + B) % (2 * B)
        chosen = [j for j in range(2 * B) if j != i]
        if goals is not None:
            chosen = [j for j in chosen if j == partner or goals[j % B] != goals[i % B]]
        logits = {j: float(view @ views[j]) / temperature for j in chosen}
        total += math.log(sum(math.exp(value) for value in logits.values())) - logits[partner]
    return total / (2 * B)


@pytest.mark.parametrize(
    "options", [{}, {"temperature": 0.5, "similarity": "cosine"}, {"same_target_negatives": False}]
)
@torch.no_grad()
def test_contrast_equals_its_definition(options: dict[str, object]) -> None:
    model = model_of()
    goals = [1, 2, 1, 3]
    batch = replace(prefixes([6, 1, 3, 4], 0, goals), twins=prefixes([2, 1, 5, 4], 1, goals))
    settings = ContrastSettings.model_validate({"weight": 0.3, **options})
    losses = settings.losses(model, batch)
    users, twins = model(batch).users, model(batch.twins).users
    if settings.similarity == "cosine":
        users, twins = (part / part.norm(dim=-1, keepdim=True) for part in (users, twins))
    apart = None if settings.same_target_negatives else goals
    expected = 0.3 * naive_info_nce(users, twins, settings.temperature, apart)
    assert losses["contrast"].item() == pytest.approx(expected, rel=1e-9)
    plain = NextItemSettings().losses(model, batch)
    torch.testing.assert_close(losses["cross_entropy"], plain["cross_entropy"], rtol=1e-12, atol=0)
    assert set(losses) == {"cross_entropy", "contrast", "frequency"}


@torch.no_grad()
def test_without_twins_the_views_differ_by_dropout() -> None:
    batch = prefixes([6, 1, 3, 4], 0)
    model = model_of()
    users = model(batch).users
    losses = ContrastSettings().losses(model, batch)
    assert losses["contrast"].item() == pytest.approx(0.1 * naive_info_nce(users, users, 1.0), rel=1e-9)
    dropped = ContrastSettings().losses(model_of(dropout=0.5), batch)
    assert dropped["frequency"] > 0
    assert dropped["contrast"] != losses["contrast"]


@torch.no_grad()
def test_frequency_loss_compares_the_spectra_of_the_views() -> None:
    model = model_of()
    batch = replace(prefixes([6, 1, 3], 0), twins=prefixes([2, 1, 5], 1))
    users, twins = model(batch).users, model(batch.twins).users
    expected = 0.1 * (torch.fft.rfft(users, norm="ortho") - torch.fft.rfft(twins, norm="ortho")).abs().mean()
    losses = ContrastSettings().losses(model, batch)
    torch.testing.assert_close(losses["frequency"], expected, rtol=1e-9, atol=0)


@torch.no_grad()
def test_views_are_the_history_under_other_dropout_and_its_twin() -> None:
    model = model_of(dropout=0.5).train()
    batch = replace(prefixes([6, 1, 3], 0), twins=prefixes([2, 1, 5], 1))
    torch.manual_seed(3)
    losses = ContrastSettings().losses(model, batch)
    torch.manual_seed(3)
    first, second, twins = model(Batch.stack(batch, batch, batch.twins)).users.chunk(3)
    assert not torch.equal(first, second)
    expected = 0.1 * (torch.fft.rfft(second, norm="ortho") - torch.fft.rfft(twins, norm="ortho")).abs().mean()
    torch.testing.assert_close(losses["frequency"], expected, rtol=1e-9, atol=0)
    assert losses["contrast"].item() == pytest.approx(0.1 * naive_info_nce(second, twins, 1.0), rel=1e-9)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_gradients_are_finite_and_reach_every_parameter(dropout: float) -> None:
    model = model_of(dropout)
    alone = prefixes([6, 1, 3, 4], 0)
    for batch in (alone, replace(alone, twins=alone)):
        model.zero_grad()
        losses = ContrastSettings().losses(model, batch)
        (losses["contrast"] + losses["frequency"]).backward()
        grads = [parameter.grad for parameter in model.parameters()]
        assert all(grad is not None and grad.isfinite().all() for grad in grads)
        assert all(grad.abs().sum() > 0 for grad in grads)


@torch.no_grad()
def test_causal_models_learn_from_all_positions() -> None:
    model = model_of(causal=True)
    batch = prefixes([6, 1, 3, 4], 0)
    batch = replace(batch, targets=torch.where(batch.items > 0, batch.items.roll(1, 0).clamp(min=1), 0))
    losses = ContrastSettings().losses(model, batch)
    torch.testing.assert_close(losses["cross_entropy"], NextItemSettings().losses(model, batch)["cross_entropy"])
    users = model(batch).users
    assert losses["contrast"].item() == pytest.approx(0.1 * naive_info_nce(users, users, 1.0), rel=1e-9)
