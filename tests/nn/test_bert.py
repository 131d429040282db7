"""BERT4Rec's encoder against its equations, written out for one row, head and slot at a time."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from marsrec.data.batches import Batch
from marsrec.errors import SettingsError
from marsrec.nn.encoders.bert import Bert, BertSettings

DIM, LENGTH = 6, 5


def small(**settings: object) -> Bert:
    torch.manual_seed(0)
    encoder = BertSettings.model_validate({"inner": 10, **settings}).build(DIM, LENGTH)
    for parameter in encoder.parameters():  # at its start, attention is too even to tell anything
        torch.nn.init.normal_(parameter, std=0.5)
    return encoder.double().eval()


def batch_of(lengths: list[int], width: int = LENGTH) -> Batch:
    zeros = torch.zeros(len(lengths), width, dtype=torch.long)
    return Batch(zeros, zeros, torch.tensor(lengths), zeros, zeros)


def rows_of(lengths: list[int], width: int = LENGTH) -> Tensor:
    """Random events; padding is zero, as the item embedding has it."""
    torch.manual_seed(1)
    events = torch.randn(len(lengths), LENGTH, DIM, dtype=torch.float64)
    inside = torch.arange(width) < torch.tensor(lengths)[:, None]
    return F.pad(events, (0, 0, 0, width - LENGTH)) * inside[..., None]


def naive(encoder: Bert, row: Tensor) -> Tensor:
    """(S, d) -> (S, d): all slots of one row, none of them padding."""
    x = encoder.norm(row + encoder.positions.weight[: len(row)])
    for block in encoder.blocks:
        mixed = torch.zeros_like(x)
        size = DIM // block.heads
        queries, keys, values = block.qkv(x).split(DIM, dim=1)
        for head in range(block.heads):
            part = slice(head * size, (head + 1) * size)
            for s in range(len(x)):
                logits = torch.stack([queries[s, part] @ key[part] / math.sqrt(size) for key in keys])
                mixed[s, part] = sum(w * value[part] for w, value in zip(logits.softmax(0), values, strict=True))
        x = block.attention_norm(x + block.out(mixed))
        first, _, second = block.feed_forward
        x = block.norm(x + second(F.gelu(first(x))))
    return x


@torch.no_grad()
def test_the_state_at_the_latest_event_is_that_of_the_mask_after_it() -> None:
    encoder, lengths = small(), [5, 1, 3]
    states = encoder(rows_of(lengths), batch_of(lengths))
    for row, state, length in zip(rows_of(lengths), states, lengths, strict=True):
        expected = naive(encoder, torch.cat([row[:length], encoder.mask[None]]))
        torch.testing.assert_close(state[:length], expected[1:], rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_slots_see_both_ways_and_no_padding() -> None:
    encoder, lengths = small(), [6, 2, 4]
    rows = torch.randn(3, LENGTH + 1, DIM, dtype=torch.float64)  # padding that is not zero must not matter either
    states = encoder.slots(rows, torch.tensor(lengths))
    for row, state, length in zip(rows, states, lengths, strict=True):
        torch.testing.assert_close(state[:length], naive(encoder, row[:length]), rtol=1e-9, atol=1e-9)
    rows[0, 5, 0] += 1
    assert ((encoder.slots(rows, torch.tensor(lengths))[0] - states[0]).abs().amax(1) > 1e-6).all()


@pytest.mark.parametrize("published", [False, True])
@torch.no_grad()
def test_padding_and_batch_mates_do_not_matter(published: bool) -> None:
    encoder, lengths = small(published=published), [3, 5, 1]
    together = encoder(rows_of(lengths), batch_of(lengths))
    for index, length in enumerate(lengths):
        alone = encoder(rows_of(lengths)[index : index + 1, :length], batch_of([length], length))
        torch.testing.assert_close(together[index, length - 1], alone[0, -1], rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_published_recommendations_forget_the_oldest_event() -> None:
    published, ours, lengths = small(published=True), small(), [5, 2]
    rows, batch = rows_of(lengths), batch_of(lengths)
    states = published(rows, batch)
    for row, state, length in zip(rows, states, lengths, strict=True):
        expected = naive(published, torch.cat([row[1:length], published.mask[None]]))
        torch.testing.assert_close(state[length - 1], expected[-1], rtol=1e-9, atol=1e-9)
    other = rows.clone()
    other[:, 0, 0] += 1
    assert (published(other, batch) == states).all()
    assert not torch.allclose(ours(other, batch)[0, 4], ours(rows, batch)[0, 4])


@torch.no_grad()
def test_attention_with_dropout_is_the_same_attention() -> None:
    """The way that it takes in training sees the same slots; what it drops, it drops from the weights."""
    encoder = small(layers=1, dropout=0.0, attention_dropout=0.3)
    row, batch = rows_of([3]), batch_of([3])
    expected = encoder(row, batch)[0, :3]
    encoder.train()
    draws = torch.stack([encoder(row, batch)[0, :3] for _ in range(3)])
    assert (draws - expected).abs().amax((1, 2)).gt(1e-3).all()
    encoder.blocks[0].attention_dropout = 1e-12  # takes the same way, and drops nothing
    torch.testing.assert_close(encoder(row, batch)[0, :3], expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(encoder(row[:, :3], batch_of([3], 3))[0], expected, rtol=1e-9, atol=1e-9)


def test_gradients_reach_every_parameter() -> None:
    encoder = small().train()
    encoder(rows_of([5, 2]), batch_of([5, 2])).square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in encoder.parameters())
    assert encoder.positions.weight.grad.abs().sum(1).gt(0).all()  # also the slot after a full history


def test_sizes_and_start() -> None:
    encoder = BertSettings().build(64, 50)
    assert sum(parameter.numel() for parameter in encoder.parameters()) == 103_296 + 64 + 64  # SASRec's, slot, mask
    assert 0.01 < encoder.mask.std().item() < 0.03
    with pytest.raises(SettingsError, match=r"multiple of encoder\.attention_heads"):
        BertSettings(attention_heads=3).build(64, 50)
