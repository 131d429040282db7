"""What holds for every objective."""

from marsrec.testing.case import Case, Check, split


def losses_are_named_numbers(case: Case) -> None:
    """An objective gives finite numbers by name, the same under the same seed of torch.

    Return a mean and not a vector, and draw from torch's generator alone.
    """
    once, again = (case.losses(split()) for _ in range(2))
    assert all(value.shape == () and value.isfinite() for value in once.values()), f"{once}"
    assert once == again, "other losses under the same seed"


CHECKS: tuple[Check, ...] = (losses_are_named_numbers,)
