"""The conformance suite: what holds for our parts has to hold for yours.

`check_encoder(MyEncoderSettings())` puts an encoder into a small model and runs the checks of
`testing.every_part`, `testing.encoders`, `testing.fast` and `testing.recommenders`. The first that fails raises an
AssertionError that names it, what was expected, what was found, and what to do. Call it in a test; it takes seconds.
"""

import inspect
from collections.abc import Sequence
from typing import Any

import torch

from marsrec.nn.encoders.base import EncoderSettings
from marsrec.nn.objectives.base import ObjectiveSettings
from marsrec.nn.parts import Part
from marsrec.nn.readouts.base import ReadoutSettings
from marsrec.nn.scorers import ScorerSettings
from marsrec.nn.settings import ModelSettings
from marsrec.testing import encoders, every_part, fast, objectives, readouts, recommenders, scorers
from marsrec.testing.case import LENGTH, Case, Check

__all__ = ["check_encoder", "check_model", "check_objective", "check_readout", "check_scorer"]

SMALL_GRU = {"name": "gru", "hidden": 8}
"""What goes before a readout or scorer that is checked: it is causal and recurrent."""


def check_encoder(encoder: EncoderSettings, **model: Any) -> None:
    """Check that an encoder keeps what it promises by `causal`, `recurrent` and `sees_times`.

    Parameters
    ----------
    encoder : EncoderSettings
        Small settings make it fast.
    **model
        Other settings of the model around it, such as readout="core" for states of another width than the items.

    Examples
    --------
    >>> from marsrec.nn.encoders.gru import GruSettings
    >>> check_encoder(GruSettings(hidden=8))
    """
    objective = encoder.trained_by or "next item"
    _check(encoder, encoders.CHECKS, **{"encoder": encoder, "objective": objective} | model)


def check_readout(readout: ReadoutSettings, **model: Any) -> None:
    """Check a readout on a small GRU, or on the `encoder` that is given; see `check_encoder`."""
    _check(readout, readouts.CHECKS, **{"encoder": SMALL_GRU, "readout": readout} | model)


def check_scorer(scorer: ScorerSettings, **model: Any) -> None:
    """Check a scorer behind a small GRU; see `check_encoder`."""
    _check(scorer, scorers.CHECKS, **{"encoder": SMALL_GRU, "scorer": scorer} | model)


def check_objective(objective: ObjectiveSettings, **model: Any) -> None:
    """Check an objective on an encoder that it trains, or on the `encoder` that is given; see `check_encoder`."""
    trained = (SMALL_GRU, *({"name": name} for name in EncoderSettings.known()))
    encoder = next(some for some in trained if objective.trains(EncoderSettings.model_validate(some)))
    _check(objective, objectives.CHECKS, **{"encoder": encoder, "objective": objective} | model)


def check_model(settings: ModelSettings) -> None:
    """Check all parts of a model together, on histories of at most ten events; a dim of 8 is enough."""
    own = (*encoders.CHECKS, *readouts.CHECKS, *scorers.CHECKS, *objectives.CHECKS)
    _run(settings.model_copy(update={"length": LENGTH}), "the model", own)


def _check(part: Part, checks: Sequence[Check], **model: Any) -> None:
    settings = ModelSettings(**{"dim": 8, "length": LENGTH} | model)
    _run(settings, f"{part.kind} {part.name!r}", checks)


def _run(settings: ModelSettings, name: str, checks: Sequence[Check]) -> None:
    case = Case(settings)
    with torch.random.fork_rng(devices=[]):
        for check in (
            *every_part.CHECKS,
            *checks,
            *fast.CHECKS,
            *recommenders.CHECKS,
        ):  # what says most about a fault comes first
            try:
                check(case)
            except Exception as error:  # whatever a part raises is what was found
                expected, _, remedy = (inspect.getdoc(check) or check.__name__).partition("\n\n")
                found = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
                sentence = " ".join(remedy.split())
                raise AssertionError(
                    f"{name} fails {check.__name__}.\nExpected: {expected}\nFound: {found}\nWhat to do: {sentence}"
                ) from error
