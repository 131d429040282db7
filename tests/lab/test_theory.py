"""The propositions in numbers: fits and bounds against known answers, recovery of a known law, and an honest page."""

import copy
import json
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest

from marsrec.data.hawkes import hawkes
from marsrec.lab.page import Picture, markdown
from marsrec.lab.theory import section
from marsrec.lab.theory.approximation import SHAPES, Shape, best_found, lower_bound
from marsrec.lab.theory.complexity import READ, TITLES, Sweep
from marsrec.lab.theory.identifiability import Recovery, maximum_likelihood, process

POINTS = 40


def errors(name: str, *, signed: bool, counts: tuple[int, ...] = (1, 2, 4)) -> list[float]:
    found = best_found(SHAPES[name], counts, signed=signed, points=POINTS, steps=20)
    for mixture in found:
        assert sum(mixture.weights) == pytest.approx(1)
        assert signed or min(mixture.weights) >= 0
        assert mixture.total == pytest.approx(1) or signed
    return [mixture.error for mixture in found]


def test_completely_monotone_decay_needs_no_signs() -> None:
    positive, signed = errors("power law", signed=False), errors("power law", signed=True)
    assert positive[0] > 0.05 > 0.005 > positive[2]
    assert signed[2] <= 1.1 * positive[2]
    assert lower_bound(SHAPES["power law"], points=POINTS, rates=200) < 1e-4


def test_ramp_needs_signs() -> None:
    bound = lower_bound(SHAPES["linear ramp"], points=POINTS, rates=200)
    positive, signed = errors("linear ramp", signed=False), errors("linear ramp", signed=True)
    assert bound > 0.13
    assert min(positive) >= bound  # what is found cannot be below what is proved
    assert signed[2] < 1e-3


def test_jump_costs_a_half() -> None:
    for signed in (False, True):
        assert errors("step", signed=signed, counts=(1, 4)) == pytest.approx([0.5, 0.5], abs=1e-3)


def test_mixture_is_found_again() -> None:
    def decay(t: Any) -> Any:
        return 0.2 * np.exp(-0.5 * t) + 0.5 * np.exp(-8 * t) + 0.3 * np.exp(-200 * t)

    (found,) = best_found(Shape("three rates", decay, True), (3,), signed=False, points=POINTS)
    assert found.error < 1e-6
    assert sorted(found.rates) == pytest.approx([0.5, 8, 200], rel=1e-3)


def test_errors_are_up_to_permutation_by_order() -> None:
    rate, weight = Recovery([0.25, 16.0, 240.0], [0.5, 0.25, 0.25]).errors([0.25, 8.0, 240.0], [0.6, 0.25, 0.15])
    assert (rate, weight) == pytest.approx((np.log(2) / 3, 0.2))


def test_likelihood_recovers_the_law() -> None:
    settings = process(600, seed=1)
    log, truth = hawkes(settings)
    for known, rate_tolerance in (("parents", 0.1), ("background", 0.25)):
        rate, weight = maximum_likelihood(log, truth, known).errors(settings.half_lives, settings.weights)  # type: ignore[arg-type]
        assert rate < rate_tolerance
        assert weight < 0.1


def test_slope_of_a_power() -> None:
    sweep = Sweep("x", "L", [1, 2, 4], [3.0, 12.0, 48.0], [0.0] * 3)
    assert (sweep.slope, sweep.last_slope) == pytest.approx((2, 2))


@pytest.fixture
def measured() -> dict[str, Any]:
    """Invented numbers in the form that `measure` gives, in which everything goes as the paper says."""

    def mixtures(*found: float) -> list[dict[str, Any]]:
        return [{"rates": [1.0], "weights": [1.0], "error": error, "total": 1.0} for error in found]

    def shape(name: str, bound: float, positive: list[Any], jump: bool = False) -> dict[str, Any]:
        told = {"name": name, "formula": "f", "completely_monotone": bound == 0, "jump": jump, "lower_bound": bound}
        return told | {"positive": positive, "signed": mixtures(0.1, 1e-5)}

    def row(rate: float, weight: float, **told: Any) -> dict[str, Any]:
        return told | {"half_lives": [1.0, 9.0], "weights": [0.5, 0.5], "rate_error": rate, "weight_error": weight}

    sweeps = [
        {"name": name, "size": size, "values": [64, 128], "seconds": [1.0, 2.0], "spread": [0.1, 0.1]}
        for name in TITLES
        for size in (("L", "d", "K") if name == READ else ("L",))
    ]
    likelihood = [row(1 / users, 1 / users, users=users, seed=0, known="times", events=9) for users in (10, 100)]
    learned = [
        row(0.01, 0.01, users=50, events=9, time_scale=scale, diversity=weight, divergence=weight, ndcg=0.1, epochs=2)
        | {"start": row(1.0, 1.0)}
        for scale in ("linear", "log")
        for weight in (0.01, 0.0)
    ]
    return {
        "quick": True,
        "approximation": {
            "counts": [1, 2],
            "largest": 100.0,
            "shapes": [shape("power law", 0.0, mixtures(0.1, 1e-5))],
        },
        "complexity": {"base": {"L": 64}, "histories": 1, "repetitions": 3, "threads": 1, "sweeps": sweeps},
        "identifiability": {
            "half_lives": [1.0, 9.0],
            "weights": [0.5, 0.5],
            "likelihood": likelihood,
            "learned": learned,
        },
    }


def test_page_names_every_proposition_and_draws_from_json(measured: dict[str, Any]) -> None:
    page = section(json.loads(json.dumps(measured)))
    assert (page.name, page.title) == ("theory", "Theory in numbers")
    text = markdown(page)
    for number in (1, 2, 3):
        assert f"## Proposition {number}" in text
    pictures = [part for part in page.parts if isinstance(part, Picture)]
    assert len(pictures) == 3
    figures = [picture.draw() for picture in pictures]
    assert all(len(figure.axes) == 2 for figure in figures)
    _, cost, recovery = figures
    cost.draw_without_rendering()
    for axis in cost.axes:
        low, high = axis.get_ylim()
        assert sum(low <= tick <= high for tick in axis.get_yticks()) > 2
        legend = axis.get_legend()
        assert legend is not None
        assert legend.get_window_extent().y1 < axis.bbox.y0  # covers no line
    for axis in recovery.axes:  # a single training is no trend
        joined = {str(line.get_label()).split(",")[0]: line.get_linestyle() != "None" for line in axis.lines}
        assert joined == {"likelihood": True, "mars-t": False}
    plt.close("all")


def test_page_claims_only_what_the_numbers_show(measured: dict[str, Any]) -> None:
    fine = markdown(section(measured))
    for claim in (
        "false for them",
        "that is not what the proposition says",
        "do not collapse",
        "are not yet the rates",
    ):
        assert claim not in fine
    assert "None is above 1.25" in fine
    assert "Both shrink" in fine

    worse = copy.deepcopy(measured)
    worse["approximation"]["shapes"][0] |= {"name": "ramp", "lower_bound": 0.14}
    worse["complexity"]["sweeps"][0]["seconds"] = [1.0, 4.0]
    for row in worse["identifiability"]["learned"]:
        row |= {"divergence": 0.3, "rate_error": 2.0}
    text = markdown(section(worse))
    for claim in ("0.140 for the ramp", "beyond 1.25, in L", "do not collapse", "are not yet the rates", "not nearer"):
        assert claim in text
    assert "None is above 1.25" not in text
