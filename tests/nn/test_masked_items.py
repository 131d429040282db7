"""Which slots are masked, what is seen of them, and the loss against a plain cross-entropy."""

import pytest
import torch
import torch.nn.functional as F

from marsrec.data.batches import Batch
from marsrec.errors import SettingsError
from marsrec.nn.encoders.bert import Bert, BertSettings
from marsrec.nn.encoders.transformer import TransformerSettings
from marsrec.nn.model import SequenceModel
from marsrec.nn.objectives.masked_items import MaskedItemsSettings, slots
from marsrec.nn.objectives.next_item import NextItemSettings
from marsrec.nn.readouts.core import CoreSettings
from marsrec.nn.readouts.last import LastSettings
from marsrec.nn.scorers import BiasedSettings

N_ITEMS, DIM = 9, 6
BATCH = Batch(
    items=torch.tensor([[5, 6, 0, 0], [1, 2, 3, 4], [7, 0, 0, 0]]),
    times=torch.zeros(3, 4, dtype=torch.long),
    lengths=torch.tensor([2, 4, 1]),
    targets=torch.tensor([[0, 8, 0, 0], [0, 0, 0, 5], [9, 0, 0, 0]]),
    target_times=torch.zeros(3, 4, dtype=torch.long),
)
SLOTS = [[5, 6, 8], [1, 2, 3, 4, 5], [7, 9]]


def small(dropout: float = 0.0) -> SequenceModel:
    torch.manual_seed(0)
    encoder = BertSettings(inner=10, dropout=dropout).build(DIM, 4)
    scorer = BiasedSettings().build(DIM, N_ITEMS)
    model = SequenceModel(N_ITEMS, DIM, encoder, LastSettings().build(DIM, DIM, 1.0), scorer, item_std=1.0)
    torch.nn.init.normal_(scorer.bias)
    torch.nn.init.normal_(encoder.mask)
    return model.double().train()


def test_slots_are_the_events_and_the_target_after_them() -> None:
    assert slots(BATCH).tolist() == [row + [0] * (5 - len(row)) for row in SLOTS]


def test_shares_of_masked_slots() -> None:
    """The target alone in a share last_ratio of batches; else each slot with mask_ratio, or the target for want of any.

    A batch and not a row is drawn, so that the task of a recommendation has its share whatever the lengths are.
    """
    torch.manual_seed(0)
    batches, lengths = 4000, torch.tensor([5, 3])
    objective = MaskedItemsSettings(mask_ratio=0.3, last_ratio=0.4)
    drawn = torch.stack([objective.draw(lengths.repeat(50), 5) for _ in range(batches)])  # (batches, rows, slots)
    only_targets = (drawn.sum(dim=2) == 1).all(dim=1) & drawn[:, ::2, 4].all(dim=1)
    assert abs(only_targets.double().mean().item() - 0.4) < 0.03
    masked = drawn.view(-1, 2, 5)
    assert masked.any(dim=2).all()  # every row has something to learn
    assert not masked[:, 1, 3:].any()  # and never in its padding
    shares = masked.double().mean(dim=0)
    for row, length in enumerate(lengths.tolist()):
        nothing = 0.7**length
        expected = [0.6 * 0.3] * (length - 1) + [0.4 + 0.6 * (0.3 + nothing)]  # slot 0 as often as the others
        torch.testing.assert_close(shares[row, :length], torch.tensor(expected).double(), rtol=0, atol=0.03)
        alone = (masked[:, row].sum(dim=1) == 1) & masked[:, row, length - 1]
        assert abs(alone.double().mean().item() - (0.4 + 0.6 * (nothing + 0.3 * 0.7 ** (length - 1)))) < 0.005


MASKED = [[2], [0, 3], [0, 1]]
"""Slot 0 of two rows, and all of the last row."""
MASK = torch.tensor([[slot in row for slot in range(5)] for row in MASKED])


@pytest.fixture
def given_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a draw, but MASK."""
    monkeypatch.setattr(MaskedItemsSettings, "draw", lambda self, lengths, width: MASK)


@pytest.mark.usefixtures("given_mask")
def test_loss_equals_a_plain_cross_entropy_row_by_row() -> None:
    model, objective = small(), MaskedItemsSettings()
    encoder = model.encoder
    assert isinstance(encoder, Bert)
    expected = []
    for items, places in zip(SLOTS, MASKED, strict=True):
        row = torch.stack([encoder.mask if s in places else model.items.weight[item] for s, item in enumerate(items)])
        scores = model.score(encoder.slots(row[None], torch.tensor([len(row)]))[0])
        expected += [F.cross_entropy(scores[s, 1:], torch.tensor(items[s] - 1)) for s in places]
    losses = objective.losses(model, BATCH)
    assert set(losses) == {"cross_entropy"}
    torch.testing.assert_close(losses["cross_entropy"], torch.stack(expected).mean(), rtol=1e-9, atol=1e-9)


def test_masking_the_target_alone_is_the_task_of_a_recommendation() -> None:
    model = small()
    masked = MaskedItemsSettings(last_ratio=1.0).losses(model, BATCH)["cross_entropy"]
    torch.testing.assert_close(masked, NextItemSettings().losses(model, BATCH)["cross_entropy"], rtol=1e-9, atol=1e-9)


@pytest.mark.usefixtures("given_mask")
def test_masked_items_are_not_seen() -> None:
    """Where an item is masked, nothing but the mask and the position enters; elsewhere the item itself."""
    model, seen = small(), []
    encoder = model.encoder
    assert isinstance(encoder, Bert)
    encoder.norm.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    MaskedItemsSettings().losses(model, BATCH)
    expected = torch.where(MASK[..., None], encoder.mask, model.items.weight[slots(BATCH)])
    for part, rows in zip(seen, ([1, 0], [2]), strict=True):  # by length
        entered = part - encoder.positions.weight[: part.shape[1]]
        torch.testing.assert_close(entered, expected[rows, : part.shape[1]], rtol=1e-9, atol=1e-9)


def test_every_parameter_and_every_position_learns() -> None:
    model = small(dropout=0.1)
    objective = MaskedItemsSettings(mask_ratio=0.5)
    for _ in range(5):
        sum(objective.losses(model, BATCH).values()).backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert all(gradient.abs().sum() > 0 for gradient in gradients.values())
    assert gradients["encoder.positions.weight"].abs().sum(1).gt(0).all()
    assert gradients["items.weight"][0].abs().sum() == gradients["scorer.bias"][0].abs() == 0  # padding


def test_draws_follow_torch_s_seed() -> None:
    model = small(dropout=0.3)
    first, again, other = [
        (torch.manual_seed(seed), MaskedItemsSettings().losses(model, BATCH)["cross_entropy"].item())[1]
        for seed in (1, 1, 2)
    ]
    assert first == again != other


def test_other_models_are_told_the_remedy() -> None:
    last, scorer = LastSettings().build(DIM, DIM, 1.0), BiasedSettings().build(DIM, N_ITEMS)
    causal = SequenceModel(N_ITEMS, DIM, TransformerSettings().build(DIM, 4), last, scorer)
    averaged = SequenceModel(N_ITEMS, DIM, BertSettings().build(DIM, 4), CoreSettings().build(DIM, DIM, 1.0), scorer)
    for model, found in ((causal, "found Transformer and Last"), (averaged, "found Bert and Core")):
        with pytest.raises(SettingsError, match=f'encoder "bert".*{found}.*objective "next item"'):
            MaskedItemsSettings().losses(model, BATCH)


def test_bert4rec_in_all() -> None:
    encoder, scorer = BertSettings().build(64, 50), BiasedSettings().build(64, 12_101)
    model = SequenceModel(12_101, 64, encoder, LastSettings().build(64, 64, 1.0), scorer)
    assert model.parameter_count() == 894_342
