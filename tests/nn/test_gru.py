"""GRU4Rec's encoder against its equations, written out one event at a time."""

import math

import pytest
import torch
from torch import Tensor

from marsrec.data.batches import Batch
from marsrec.nn.encoders.gru import Gru, GruSettings


def small(**settings: object) -> Gru:
    torch.manual_seed(0)
    return GruSettings.model_validate({"hidden": 6, **settings}).build(dim=4, length=1).double().eval()


def naive_encoder(encoder: Gru, sequence: Tensor) -> Tensor:
    """(L, d) -> (L, width): reset gate r, update gate z, candidate n."""
    x = list(sequence)
    for layer in range(encoder.gru.num_layers):
        W_r, W_z, W_n = getattr(encoder.gru, f"weight_ih_l{layer}").chunk(3)
        U_r, U_z, U_n = getattr(encoder.gru, f"weight_hh_l{layer}").chunk(3)
        h, outputs = torch.zeros(encoder.gru.hidden_size, dtype=sequence.dtype), []
        for event in x:
            r, z = torch.sigmoid(W_r @ event + U_r @ h), torch.sigmoid(W_z @ event + U_z @ h)
            n = torch.tanh(W_n @ event + r * (U_n @ h))
            h = (1 - z) * n + z * h
            outputs.append(h)
        x = outputs
    states = torch.stack(x)
    return states if encoder.width == encoder.gru.hidden_size else states @ encoder.out.weight.T + encoder.out.bias


def batch_of(rows: int, length: int) -> Batch:
    zeros = torch.zeros(rows, length, dtype=torch.long)
    return Batch(zeros, zeros, torch.full((rows,), length), zeros, zeros)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize(("project", "width"), [(True, 4), (False, 6)])
@torch.no_grad()
def test_encoder_equals_its_equations(layers: int, project: bool, width: int) -> None:
    encoder = small(layers=layers, project=project)
    embedded = torch.randn(3, 7, 4, dtype=torch.float64)
    states = encoder(embedded, batch_of(3, 7))
    assert states.shape == (3, 7, width)
    assert encoder.width == width
    expected = torch.stack([naive_encoder(encoder, row) for row in embedded])
    torch.testing.assert_close(states, expected, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_states_see_neither_later_events_nor_padding_nor_other_rows() -> None:
    encoder = small(layers=2)
    embedded = torch.randn(3, 7, 4, dtype=torch.float64)
    states = encoder(embedded, batch_of(3, 7))
    changed = embedded.clone()
    changed[:, 4] += 1
    after = encoder(changed, batch_of(3, 7))
    torch.testing.assert_close(after[:, :4], states[:, :4], rtol=0, atol=0)
    assert (after[:, 4:] - states[:, 4:]).abs().amax(-1).min() > 1e-6
    padded = torch.cat([embedded[:1, :5], torch.zeros(1, 45, 4)], dim=1)
    torch.testing.assert_close(encoder(padded, batch_of(1, 50))[0, :5], states[0, :5], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("cuts", [[30], [1] * 30, [2, 1, 5, 22]], ids=["whole", "event by event", "pieces"])
@pytest.mark.parametrize("project", [True, False])
@torch.no_grad()
def test_going_on_from_memory_gives_the_states_of_the_whole_history(cuts: list[int], project: bool) -> None:
    encoder = small(layers=2, project=project)
    embedded = torch.randn(3, 30, 4, dtype=torch.float64)
    memory, states = encoder.start(3), []
    for piece in embedded.split(cuts, dim=1):
        out, memory = encoder.resume(memory, piece)
        states.append(out)
        assert [part.shape for part in memory] == [(3, 2, 6)]
    torch.testing.assert_close(torch.cat(states, dim=1), encoder(embedded, batch_of(3, 30)), rtol=1e-9, atol=1e-9)


def test_dropout_is_on_embeddings_and_only_while_training() -> None:
    encoder = small(dropout=0.5).train()
    embedded = torch.ones(2, 100, 4, dtype=torch.float64, requires_grad=True)
    encoder(embedded, batch_of(2, 100)).sum().backward()
    assert 0.35 < (embedded.grad == 0).double().mean() < 0.65  # a dropped input has no influence
    encoder.eval()
    (gradient,) = torch.autograd.grad(encoder(embedded, batch_of(2, 100)).sum(), embedded)
    assert (gradient != 0).all()


def test_gradients_reach_every_parameter() -> None:
    encoder = small(layers=2)
    encoder(torch.randn(2, 5, 4, dtype=torch.float64), batch_of(2, 5)).square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in encoder.parameters())


def test_parameters_and_their_initial_range() -> None:
    torch.manual_seed(0)
    encoder = GruSettings().build(64, 50)
    assert sum(parameter.numel() for parameter in encoder.parameters()) == 81_984
    for weight, inputs in ((encoder.gru.weight_ih_l0, 64), (encoder.gru.weight_hh_l0, 128)):
        bound = math.sqrt(6 / (inputs + 3 * 128))  # Xavier, uniform
        assert 0.99 * bound < weight.abs().max() <= bound
    assert sum(parameter.numel() for parameter in GruSettings(project=False).build(64, 50).parameters()) == 73_728
