"""Each check of `marsrec.testing` finds the fault that it is there for, and says what to do."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from marsrec.data.batches import Batch
from marsrec.nn.encoders.base import Encoder, EncoderSettings, Memory, picked
from marsrec.nn.encoders.gru import GruSettings
from marsrec.nn.objectives.base import ObjectiveSettings
from marsrec.nn.objectives.next_item import NextItemSettings
from marsrec.nn.readouts.base import Contributions, Readout, ReadoutOutput, ReadoutSettings
from marsrec.nn.readouts.last import Last
from marsrec.nn.scorers import Scorer, ScorerSettings
from marsrec.nn.settings import ModelSettings
from marsrec.testing import check_encoder, check_model, check_objective, check_readout, check_scorer

pytestmark = pytest.mark.usefixtures("parts_of_this_test")


class Linear(Encoder):
    """The sound encoder that the faulty ones differ from."""

    causal, recurrent = True, True

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.layer = nn.Linear(dim, dim)

    def forward(self, embedded: Tensor, batch: Batch) -> Tensor:
        return self.layer(embedded)

    def start(self, rows: int) -> Memory:
        return (self.layer.weight.new_zeros(rows, 1),)

    def go_on(self, memory: Memory, embedded: Tensor) -> tuple[Tensor, Memory]:
        return self.layer(embedded), memory


class Padded(Linear):
    causal = False

    def forward(self, embedded: Tensor, batch: Batch) -> Tensor:
        return self.layer(embedded).mean(1, keepdim=True).expand_as(embedded)


class Ahead(Linear):
    def forward(self, embedded: Tensor, batch: Batch) -> Tensor:
        inside = batch.inside[..., None]
        return self.layer(embedded) + (embedded * inside).sum(1, keepdim=True) / inside.sum(1, keepdim=True)


class Timed(Linear):
    def forward(self, embedded: Tensor, batch: Batch) -> Tensor:
        return self.layer(embedded) * torch.log1p((batch.times - batch.times[:, :1]).double())[..., None]


class Unused(Linear):
    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.spare = nn.Linear(dim, dim)


class Endless(Linear):
    def forward(self, embedded: Tensor, batch: Batch) -> Tensor:
        return self.layer(embedded) + (self.layer.weight * 0).sum().sqrt()


class Detached(Linear):
    def forward(self, embedded: Tensor, batch: Batch) -> Tensor:
        return self.layer(embedded) + self.layer(embedded.detach()).sin()


class Drawn(Linear):
    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        with torch.no_grad():
            self.layer.bias.copy_(torch.from_numpy(np.random.default_rng().normal(size=dim)))


class Narrow(Linear):
    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.width = dim + 1


class Latest(Linear):
    def latest(self, embedded: Tensor, batch: Batch) -> Tensor:
        return 2 * super().latest(embedded, batch)


class At(Linear):
    def at(self, embedded: Tensor, batch: Batch, where: Tensor) -> Tensor:
        states = picked(self(embedded, batch), where)
        return states if batch.targets.shape[1] < 10 else states.flip(0)


class Forgetful(Linear):
    def forward(self, embedded: Tensor, batch: Batch) -> Tensor:
        return self.layer(embedded.cumsum(1))

    def go_on(self, memory: Memory, embedded: Tensor) -> tuple[Tensor, Memory]:
        return self.layer(embedded.cumsum(1)), memory


class Growing(Linear):
    def go_on(self, memory: Memory, embedded: Tensor) -> tuple[Tensor, Memory]:
        return self.layer(embedded), (torch.cat([memory[0], embedded[..., 0]], dim=1),)


class Counted(Linear):
    """Learns what is neither a parameter nor a buffer."""

    seen = 0

    def forward(self, embedded: Tensor, batch: Batch) -> Tensor:
        self.seen += self.training
        return self.layer(embedded) * (1 + self.seen)


class Mean(Readout):
    """The sound readout that the faulty ones differ from."""

    def forward(self, states: Tensor, embedded: Tensor, batch: Batch, at_targets: bool) -> ReadoutOutput:
        counts = torch.arange(1, states.shape[1] + 1)[:, None]
        means = states.cumsum(1) / counts
        return ReadoutOutput(picked(means, batch.targets > 0) if at_targets else batch.at_last(means))


class Requested(Mean):
    def forward(self, states: Tensor, embedded: Tensor, batch: Batch, at_targets: bool) -> ReadoutOutput:
        later = (batch.target_times - batch.times).double()
        return super().forward(states + later[..., None], embedded, batch, at_targets)

    sees_times = property(lambda self: True)


class Otherwise(Mean):
    def forward(self, states: Tensor, embedded: Tensor, batch: Batch, at_targets: bool) -> ReadoutOutput:
        output = super().forward(states, embedded, batch, at_targets)
        return ReadoutOutput(output.users * (2 if at_targets else 1))


class NotAlone(Last):
    def forward(self, states: Tensor, embedded: Tensor, batch: Batch, at_targets: bool) -> ReadoutOutput:
        return ReadoutOutput(super().forward(states, embedded, batch, at_targets).users + 1)


class Stale(Last):
    def remember(self, memory: Memory, states: Tensor, embedded: Tensor, times: Tensor) -> Memory:
        return (states[:, 0],)


class Partial(Mean):
    def contributions(
        self, states: Tensor, embedded: Tensor, batch: Batch, *, folded: bool = False
    ) -> Contributions | None:
        values, user = states[0], states[0].mean(0)
        return Contributions(user, torch.zeros_like(user), values, values.new_ones(1, len(values)), values.new_ones(1))


class Crossed(Scorer):
    def forward(self, users: Tensor, items: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        return users - users.mean(0), items, None


class Bent(Scorer):
    linear = True

    def forward(self, users: Tensor, items: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        return users.tanh(), items, None


def settings(base: type, build: Callable[..., Any] | None = None, **body: Any) -> Any:
    """A part called "faulty"."""
    body |= {} if build is None else {"build": build}
    names = {"name": "faulty", "__annotations__": {"name": Literal["faulty"]}, "__module__": __name__}
    return type(base)("FaultySettings", (base,), {**names, **body})()


@pytest.mark.parametrize(
    ("encoder", "check"),
    [
        (Padded, "padding_and_batch_mates_do_not_matter"),
        (Ahead, "causal_models_do_not_see_the_future"),
        (Timed, "times_count_where_a_part_says_so"),
        (Unused, "every_parameter_is_trained"),
        (Endless, "every_parameter_is_trained"),
        (Detached, "gradients_are_those_of_the_loss"),
        (Drawn, "a_seed_decides_the_first_weights"),
        (Counted, "gradients_are_those_of_the_loss"),
        (Latest, "states_at_the_latest_events_are_those_of_the_whole_pass"),
        (At, "states_at_the_targets_are_those_of_the_whole_pass"),
        (Forgetful, "a_memory_goes_on_like_the_whole_pass"),
        (Growing, "a_memory_goes_on_like_the_whole_pass"),
    ],
)
def test_faulty_encoders(encoder: type[Linear], check: str) -> None:
    faulty = settings(EncoderSettings, lambda self, dim, length: encoder(dim))
    with pytest.raises(AssertionError, match=rf"^encoder 'faulty' fails ({check})"):
        check_encoder(faulty)


@pytest.mark.parametrize(
    ("readout", "check"),
    [
        (Requested, "the_moment_of_the_request_counts_where_a_readout_says_so"),
        (Otherwise, "one_pass_reads_out_what_a_pass_per_prefix_does"),
        (NotAlone, "a_state_alone_is_read_out_like_all"),
        (Stale, "a_memory_recalls_what_the_whole_pass_reads_out"),
        (Partial, "contributions_sum_to_the_user_vector"),
    ],
)
def test_faulty_readouts(readout: type[Readout], check: str) -> None:
    faulty = settings(ReadoutSettings, lambda self, dim, width, tau0: readout())
    with pytest.raises(AssertionError, match=rf"^readout 'faulty' fails ({check})"):
        check_readout(faulty)


@pytest.mark.parametrize(
    ("scorer", "check"),
    [
        (Crossed, "scores_are_of_one_user_and_all_items"),
        (Bent, "a_linear_scorer_leaves_vectors_as_they_are"),
    ],
)
def test_faulty_scorers(scorer: type[Scorer], check: str) -> None:
    faulty = settings(ScorerSettings, lambda self, dim, n_items: scorer())
    with pytest.raises(AssertionError, match=rf"^scorer 'faulty' fails {check}"):
        check_scorer(faulty)


def test_faulty_objectives() -> None:
    def losses(self: Any, model: Any, batch: Batch, softmax: Any = None) -> Any:
        found = NextItemSettings().losses(model, batch, softmax)
        return {name: loss * (1 + np.random.default_rng().random()) for name, loss in found.items()}

    faulty = settings(ObjectiveSettings, losses=losses)
    with pytest.raises(AssertionError, match=r"^objective 'faulty' fails (gradients_are|losses_are_named_numbers)"):
        check_objective(faulty)


def test_a_name_that_is_no_literal() -> None:
    names = {"name": "any", "build": lambda self, dim, length: Linear(dim), "__annotations__": {"name": str}}
    loose = type(EncoderSettings)("LooseSettings", (EncoderSettings,), {**names, "__module__": __name__})
    with pytest.raises(
        AssertionError, match=r'fails settings_survive(?s:.)*LooseSettings\(name="another"\) is accepted'
    ):
        check_encoder(loose())


def test_states_of_another_width_are_told_apart_from_those_that_are_announced() -> None:
    faulty = settings(EncoderSettings, lambda self, dim, length: Narrow(dim))
    with pytest.raises(AssertionError, match=r"SettingsError: readout 'last' takes states as wide as"):
        check_encoder(faulty)


def test_what_was_expected_and_found_and_what_to_do() -> None:
    with pytest.raises(AssertionError) as error:
        check_encoder(settings(EncoderSettings, lambda self, dim, length: Unused(dim)))
    assert str(error.value) == (
        "encoder 'faulty' fails every_parameter_is_trained.\n"
        "Expected: Each parameter has a finite gradient.\n"
        "Found: no gradient of encoder.spare.weight, encoder.spare.bias\n"
        "What to do: Remove parameters that nothing uses. Where a gradient is not finite, look for divisions by zero, "
        "logarithms, and a softmax over nothing."
    )


def test_sound_parts_pass_and_torch_s_generator_stays_as_it_is() -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    check_encoder(settings(EncoderSettings, lambda self, dim, length: Linear(dim)))
    check_readout(settings(ReadoutSettings, lambda self, dim, width, tau0: Mean()), encoder=GruSettings(hidden=4))
    assert torch.rand(1) == expected


def test_a_whole_model_is_checked() -> None:
    faulty = settings(EncoderSettings, lambda self, dim, length: Ahead(dim))
    with pytest.raises(AssertionError, match=r"^the model fails causal_models_do_not_see_the_future"):
        check_model(ModelSettings(encoder=faulty, dim=8, length=50))
