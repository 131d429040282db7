"""What holds for every part of a model."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from marsrec.data.batches import gather
from marsrec.data.splits import Split, leave_one_out
from marsrec.nn.settings import KINDS, ModelSettings
from marsrec.testing.case import ITEMS, Case, Check, close, far, histories, split


def settings_survive_being_saved(case: Case) -> None:
    """A part is the same after its settings went to JSON and back, and it answers to its own name alone.

    Declare `name: Literal["mine"] = "mine"`, and fields of types that JSON can hold.
    """
    assert ModelSettings.model_validate_json(case.settings.model_dump_json()) == case.settings
    for part in (getattr(case.settings, kind) for kind in KINDS):
        assert type(part).named(part.name) is type(part)
        try:
            type(part).model_validate({"name": "another"})
        except ValueError:
            continue
        raise AssertionError(f'{type(part).__name__}(name="another") is accepted')


def a_seed_decides_the_first_weights(case: Case) -> None:
    """After torch.manual_seed a model is always built with the same weights.

    Draw from torch's generator alone, not from numpy's or Python's.
    """
    built = []
    for _ in range(2):
        torch.manual_seed(1)
        built.append(case.settings.build(ITEMS).state_dict())
    for name, value in built[0].items():
        assert torch.equal(value, built[1][name]), f"other numbers in {name}"


def padding_and_batch_mates_do_not_matter(case: Case) -> None:
    """A user vector is the same alone and beside longer histories in a batch.

    Rows are padded on the right: let nothing at or after `batch.lengths` have a part in what is read out.
    """
    batch = case.prefixes
    together = case.model(batch).users
    assert together.shape == (len(batch.items), case.settings.dim)
    close(torch.cat([case.model(batch[row : row + 1]).users for row in range(len(together))]), together)


def causal_models_do_not_see_the_future(case: Case) -> None:
    """What is read out at an event depends on the events up to it, and on that one.

    Hide later events, or say `causal = False` in the encoder.
    """
    if not case.model.causal:
        return
    batch = gather(split().histories, np.array([[0, 7, 1]]))
    items, times = batch.items.clone(), batch.times.clone()
    items[:, 4:] = items[:, 4:] % ITEMS + 1
    times[:, 4:] += torch.tensor([70_000, 70_001, 70_002])
    times[:, 6] = times[:, 5] + 1  # the shortest gap of the row
    requests = batch.target_times.clone()
    requests[:, 4:] += 70_003  # after these events
    other = replace(batch, items=items, times=times, target_times=requests)
    before, after = (case.model(some, at_targets=True).users for some in (batch, other))
    close(after[:4], before[:4])
    assert far(after[4:], before[4:]), "user vectors after other events that do not differ"


def times_count_where_a_part_says_so(case: Case) -> None:
    """User vectors change with the times of the events if `sees_times` says so, and else not.

    Set `sees_times` in the encoder or the readout, or take the order of the events alone.
    """
    batch = gather(split().histories, np.array([[0, 6, 6]]))
    older = batch.times - 10**7 * torch.tensor([1, 1, 1, 0, 0, 0])
    users = [case.model(some).users for some in (batch, replace(batch, times=older))]
    _counts("sees_times", case.model.sees_times, *users)


def the_moment_of_the_request_counts_where_a_readout_says_so(case: Case) -> None:
    """User vectors change with `batch.target_times` if `sees_request_time` says so, and else not.

    Set `sees_request_time` in the readout, or measure ages from the latest event.
    """
    batch = gather(split().histories, np.array([[0, 6, 6]]))
    later = replace(batch, target_times=batch.target_times + 10**7)
    users = [case.model(some).users for some in (batch, later)]
    _counts("sees_request_time", case.model.sees_request_time, *users)


def _counts(name: str, promised: bool, one: Tensor, other: Tensor) -> None:
    """Raise unless vectors differ where a part promises it, and are the same where it does not."""
    if promised:
        assert far(one, other), f"{name}=True"
    else:
        assert torch.equal(one, other), f"{name}=False"


def every_parameter_is_trained(case: Case) -> None:
    """Each parameter has a finite gradient.

    Remove parameters that nothing uses. Where a gradient is not finite, look for divisions by zero, logarithms, and a
    softmax over nothing.
    """
    case.model.zero_grad()
    torch.autograd.backward(list(case.losses(split()).values()))
    gradients = {name: parameter.grad for name, parameter in case.model.named_parameters()}
    unused = [name for name, grad in gradients.items() if grad is None]
    endless = [name for name, grad in gradients.items() if grad is not None and not grad.isfinite().all()]
    assert not unused, f"no gradient of {', '.join(unused)}"
    assert not endless, f"a gradient that is not finite of {', '.join(endless)}"


def gradients_are_those_of_the_loss(case: Case) -> None:
    """The gradients of all parameters are those that finite differences give, in double precision.

    Look for `detach`, for values that are changed in place, and for backward passes of your own.
    """
    names, parameters = zip(*case.model.named_parameters(), strict=True)
    split = leave_one_out(histories(users=2, events=7))

    def loss(*values: Tensor) -> Tensor:
        given = {f"model.{name}": value for name, value in zip(names, values, strict=True)}
        total: Tensor = torch.func.functional_call(_Loss(case, split), given, ())
        return total

    values = tuple(parameter.detach().clone().requires_grad_() for parameter in parameters)
    assert torch.autograd.gradcheck(loss, values, fast_mode=True, eps=1e-6, atol=1e-5)


class _Loss(nn.Module):
    def __init__(self, case: Case, split: Split) -> None:
        super().__init__()
        self.case, self.model, self.split = case, case.model, split

    def forward(self) -> Tensor:
        return torch.stack(list(self.case.losses(self.split).values())).sum()


CHECKS: tuple[Check, ...] = (
    settings_survive_being_saved,
    a_seed_decides_the_first_weights,
    padding_and_batch_mates_do_not_matter,
    causal_models_do_not_see_the_future,
    times_count_where_a_part_says_so,
    the_moment_of_the_request_counts_where_a_readout_says_so,
    every_parameter_is_trained,
    gradients_are_those_of_the_loss,
)
