"""Mamba4Rec's encoder against its equations, written out one event and one channel at a time."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from marsrec.data.batches import Batch
from marsrec.nn.encoders.mamba import Mamba, MambaSettings, StateSpace


def small(**settings: object) -> Mamba:
    torch.manual_seed(0)
    encoder = MambaSettings.model_validate({"states": 3, "inner": 10, **settings}).build(dim=4, length=1)
    return encoder.double().eval()


def naive_state_space(part: StateSpace, sequence: Tensor) -> Tensor:
    """(L, d) -> (L, d), from the block's definition."""
    channels, states = part.log_rates.shape
    width = part.kernel.shape[1]
    h = torch.zeros(channels, states, dtype=sequence.dtype)
    inputs, outputs = [], []
    for event in sequence:
        x, z = (part.in_projection.weight @ event).split(channels)
        inputs.append(x)
        window = [torch.zeros_like(x)] * (width - len(inputs)) + inputs[-width:]
        x = F.silu(sum(part.kernel[:, w] * window[w] for w in range(width)) + part.kernel_bias)
        step, write, read = (part.selection.weight @ x).split([part.rank, states, states])
        delta = F.softplus(part.step_size.weight @ step + part.step_size.bias)
        y = torch.empty_like(x)
        for channel in range(channels):
            for state in range(states):
                decay = torch.exp(-delta[channel] * torch.exp(part.log_rates[channel, state]))
                h[channel, state] = decay * h[channel, state] + delta[channel] * x[channel] * write[state]
            y[channel] = h[channel] @ read + part.skip[channel] * x[channel]
        outputs.append(part.out_projection.weight @ (y * F.silu(z)))
    return torch.stack(outputs)


def naive_encoder(encoder: Mamba, sequence: Tensor) -> Tensor:
    x = F.layer_norm(sequence, (4,), encoder.norm.weight, encoder.norm.bias, 1e-12)
    for block in encoder.blocks:
        mixed = naive_state_space(block.state_space, x)
        x = block.state_norm(mixed + x if len(encoder.blocks) > 1 else mixed)  # one block alone has no residual
        first, _, _, second = block.feed_forward
        x = block.norm(x + second(F.gelu(first(x))))
    return x


def batch_of(rows: int, length: int) -> Batch:
    zeros = torch.zeros(rows, length, dtype=torch.long)
    return Batch(zeros, zeros, torch.full((rows,), length), zeros, zeros)


@pytest.mark.parametrize("layers", [1, 2])
@torch.no_grad()
def test_encoder_equals_its_equations(layers: int) -> None:
    encoder = small(layers=layers)
    embedded = torch.randn(2, 6, 4, dtype=torch.float64)
    expected = torch.stack([naive_encoder(encoder, row) for row in embedded])
    torch.testing.assert_close(encoder(embedded, batch_of(2, 6)), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("cuts", [[30], [1] * 30, [2, 1, 5, 22]], ids=["whole", "event by event", "pieces"])
@torch.no_grad()
def test_going_on_from_memory_gives_the_states_of_the_whole_history(cuts: list[int]) -> None:
    encoder = small(layers=2)
    embedded = torch.randn(3, 30, 4, dtype=torch.float64)
    memory, states = encoder.start(3), []
    sizes = [part.shape for part in memory]
    for piece in embedded.split(cuts, dim=1):
        out, memory = encoder.resume(memory, piece)
        states.append(out)
    torch.testing.assert_close(torch.cat(states, dim=1), encoder(embedded, batch_of(3, 30)), rtol=1e-9, atol=1e-9)
    assert [part.shape for part in memory] == sizes  # as much after thirty events as before the first


def test_dropout_has_no_part_in_going_on_from_memory() -> None:
    encoder = small(layers=2).train()
    with pytest.raises(RuntimeError, match=r"Mamba goes on from a memory in evaluation mode only: call eval\(\)"):
        encoder.resume(encoder.start(1), torch.randn(1, 1, 4, dtype=torch.float64))


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
@torch.no_grad()
def test_memory_in_half_precision_keeps_its_kinds_of_number(half: torch.dtype) -> None:
    encoder = small(layers=2)
    embedded = torch.randn(3, 30, 4, dtype=torch.float64)
    expected = encoder(embedded, batch_of(3, 30))
    encoder, embedded = encoder.to(half), embedded.to(half)
    memory, states = encoder.start(3), []
    kinds = [part.dtype for part in memory]
    assert kinds == [half, torch.float32] * 2  # what decays slowly is lost in half precision
    for event in embedded.split(1, dim=1):
        state, memory = encoder.resume(memory, event)
        states.append(state)
        assert [part.dtype for part in memory] == kinds
    torch.testing.assert_close(torch.cat(states, dim=1).double(), expected, rtol=0, atol=0.1)


def test_gradients_reach_every_parameter() -> None:
    encoder = small(layers=2)
    encoder(torch.randn(2, 5, 4, dtype=torch.float64), batch_of(2, 5)).square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in encoder.parameters())


def test_initialisations() -> None:
    torch.manual_seed(0)
    for initialisation in ("mamba", "published"):
        part = MambaSettings(initialisation=initialisation).build(64, 1).blocks[0].state_space
        steps = F.softplus(part.step_size.bias)
        torch.testing.assert_close(part.log_rates.exp(), torch.arange(1.0, 33).repeat(128, 1))
        if initialisation == "mamba":  # log-uniform from 0.001 to 0.1
            assert 0.001 <= steps.min() < 0.0015
            assert 0.07 < steps.max() <= 0.1
            assert abs(steps.log().mean().item() - math.log(0.01)) < 0.3
        else:
            assert torch.allclose(steps, torch.tensor(2.0).log())
            assert abs(part.selection.weight.std().item() - 0.02) < 0.001
