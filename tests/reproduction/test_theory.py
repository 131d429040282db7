"""The propositions in numbers: fits and bounds against known answers, recovery of a known law, and an honest page."""

import copy
import json
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from reproduction.theory import LAYOUT, current, identifiability, page
from reproduction.theory.approximation import SHAPES, Shape, best_found, lower_bound
from reproduction.theory.complexity import ORDERS, READ
from reproduction.theory.identifiability import OPTIONS, TRAINING, learn, process
from reproduction.theory.likelihood import maximum_likelihood
from reproduction.theory.recovery import Recovery

from marsrec.data.hawkes import hawkes
from marsrec.lab.page import Picture, markdown

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
        found = maximum_likelihood(log, truth, known)  # type: ignore[arg-type]
        rate, weight = found.errors(settings.half_lives, settings.weights)
        assert rate < rate_tolerance
        assert weight < 0.1
        assert found.converged
        # As many rounds as it took give the same again, and one less has not converged.
        again, cut = (maximum_likelihood(log, truth, known, rounds=found.rounds - less) for less in (0, 1))  # type: ignore[arg-type]
        assert again == found
        assert (cut.rounds, cut.converged) == (found.rounds - 1, False)


def test_models_are_trained_with_the_settings_that_the_page_names(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    class Given(Exception):
        pass

    def recommender(model: str, **settings: Any) -> Any:
        given.update(settings, model=model)
        raise Given

    monkeypatch.setattr(identifiability, "Recommender", recommender)
    with pytest.raises(Given):
        learn(hawkes(process(5, 0))[0], time_scale="linear", diversity=0.5, heads=2, epochs=7)
    chosen = {"readout.heads": 2, "readout.time_scale": "linear", "readout.diversity": 0.5}
    assert (given["model"], given["options"]) == ("mars-t", OPTIONS | chosen)
    assert {name: getattr(given["training"], name) for name in TRAINING} == TRAINING
    assert (given["training"].epochs, given["training"].patience) == (7, 7)


@pytest.fixture
def measured() -> dict[str, Any]:
    """Invented numbers in the form that `measure` gives, in which everything goes as the paper says."""

    def mixtures(*found: float) -> list[dict[str, Any]]:
        return [{"rates": [1.0], "weights": [1.0], "error": error, "total": 1.0} for error in found]

    def shape(name: str, bound: float, positive: list[Any], jump: bool = False) -> dict[str, Any]:
        known = {"name": name, "formula": "f", "completely_monotone": bound == 0, "jump": jump, "lower_bound": bound}
        return known | {"positive": positive, "signed": mixtures(0.1, 1e-5)}

    def row(rate: float, weight: float, **known: Any) -> dict[str, Any]:
        return known | {"half_lives": [1.0, 9.0], "weights": [0.5, 0.5], "rate_error": rate, "weight_error": weight}

    def sweep(name: str, size: str) -> dict[str, Any]:
        """In the smallest sizes only what does not grow is seen, and must not count."""
        power = 1 if size != "L" else ORDERS[name][1]
        grown = [float(2**power) ** step for step in range(4)]
        seconds = [9.0, 9.0, *grown[2:]]
        known = {"name": name, "size": size, "values": [64, 128, 256, 512], "seconds": seconds, "spread": [0.1] * 4}
        held = [1e6 * (value if size == "K" else 256 + value) for value in (64, 128, 256, 512)]
        quartiles = [[0.9 * middle, 1.2 * middle] for middle in seconds]
        return known | {"quartiles": quartiles, "accumulates": grown, "peak": held}

    sweeps = [sweep(name, size) for name in ORDERS for size in (("L", "d", "K") if name == READ else ("L",))]
    likelihood = [
        row(1 / users, 1 / users, users=users, seed=0, known="times", events=9, rounds=40, converged=True)
        for users in (10, 100)
    ]
    learned = [
        row(0.01, 0.01, users=50, events=9, time_scale=scale, diversity=weight, divergence=weight, ndcg=0.1, epochs=2)
        | {"start": row(1.0, 1.0)}
        for scale in ("linear", "log")
        for weight in (0.01, 0.0)
    ]
    packages = ("marsrec", "python", "torch", "numpy", "scipy", "numba")
    return {
        "layout": LAYOUT,
        "quick": True,
        "versions": dict.fromkeys(packages, "1.2"),
        "machine": {"system": "CP/M", "cpus": 3, "cpu capability": "AVX2", "matrix products": "MKL"},
        "approximation": {
            "counts": [1, 2],
            "largest": 100.0,
            "shapes": [shape("power law", 0.0, mixtures(0.1, 1e-5))],
        },
        "complexity": {
            "base": {"L": 256, "d": 256, "K": 256},
            "histories": 1,
            "repetitions": 3,
            "trained": {"d": 64, "K": 8, "histories": 2, "repetitions": 5},
            "threads": 1,
            "sweeps": sweeps,
        },
        "identifiability": {
            "half_lives": [1.0, 9.0],
            "weights": [0.5, 0.5],
            "training": OPTIONS | TRAINING,
            "likelihood": likelihood,
            "learned": learned,
        },
    }


def test_page_names_every_proposition_and_draws_from_json(measured: dict[str, Any]) -> None:
    shown = page(json.loads(json.dumps(measured)))
    assert (shown.name, shown.title) == ("theory", "Theory in numbers")
    text = markdown(shown)
    for number in (1, 2, 3):
        assert f"## Proposition {number}" in text
    pictures = [part for part in shown.parts if isinstance(part, Picture)]
    figures = [picture.draw() for picture in pictures]
    assert [len(figure.axes) for figure in figures] == [2, 3, 3, 2]
    approximation, *costs, recovery = figures
    for cost in costs:
        cost.draw_without_rendering()
        units = ("milliseconds per history", "million multiply-accumulates per history", "peak megabytes per history")
        assert tuple(axis.get_ylabel() for axis in cost.axes) == units
        assert all("(events)" in axis.get_xlabel() for axis in cost.axes)
        for axis in cost.axes:
            low, high = axis.get_ylim()
            assert sum(low <= tick <= high for tick in axis.get_yticks()) > 2
            legend = axis.get_legend()
            assert legend is not None
            assert legend.get_window_extent().y1 < axis.bbox.y0  # covers no line
    assert [axis.get_ylabel().split(",")[0] for axis in recovery.axes] == [
        "error of the half-lives",
        "error of the weights",
    ]
    for figure in figures:
        for axis in figure.axes:  # told apart in black and white
            looks = {(line.get_marker(), line.get_linestyle()) for line in axis.lines}
            assert len(looks) == len(axis.lines)
    assert "largest error" in approximation.axes[0].get_ylabel()
    for axis in recovery.axes:  # a single training is no trend
        joined = {str(line.get_label()).split(",")[0]: line.get_linestyle() != "None" for line in axis.lines}
        assert joined == {"likelihood": True, "mars-t": False}
    plt.close("all")


def test_page_claims_only_what_the_numbers_show(measured: dict[str, Any]) -> None:
    fine = markdown(page(measured))
    for claim in (
        "false for them",
        "that is not what the proposition says",
        "do not collapse",
        "are not yet the rates",
    ):
        assert claim not in fine
    for claim in (
        "Time grows with the exponents 1.00 in L, 1.00 in d, 1.00 in K. None is above 1.25: no faster",
        "Multiply-accumulates grow with the exponents 1.00 in L, 1.00 in d, 1.00 in K: like L d K",
        "no faster than L K + d K, as it says",
        "dense, 2.00, as O(L² d K) says; MARS, at every event, streaming, 1.00, as O(L d K) says",
        "Both shrink. EM converged within 40 rounds.",
        "like K^-13.3 for the power law, K^-13.3 from 1 to 2. That is faster than 1/K",
        "learning rate of 0.003 with 1,024 targets per step",
        "0.2 on the user vector",
        "torch 1.2, numpy 1.2, scipy 1.2, numba 1.2 and Python 1.2, on CP/M with 3 CPUs (AVX2, MKL)",
    ):
        assert claim in fine

    worse = copy.deepcopy(measured)
    worse["approximation"]["shapes"][0] |= {"name": "ramp", "lower_bound": 0.14}
    length, width, heads, _, dense, streaming = worse["complexity"]["sweeps"]
    length["seconds"] = [1.0, 4.0, 16.0, 64.0]
    width["peak"] = heads["accumulates"] = [1.0, 4.0, 16.0, 64.0]
    dense["seconds"] = [1.0, 1.1, 1.2, 1.3]
    streaming["peak"] = [1.0, 4.0, 16.0, 64.0]
    worse["identifiability"]["likelihood"][1] |= {"rounds": 300, "converged": False}
    for row in worse["identifiability"]["learned"]:
        row |= {"divergence": 0.3, "rate_error": 2.0}
    text = markdown(page(worse))
    for claim in (
        "0.140 for the ramp",
        "beyond 1.25, in L",
        "not like L d K in K",
        "faster than L K + d K in d",
        "dense, 0.12, less than the 2 of O(L² d K)",
        "more than linearly, beyond 1.25, for MARS, at every event, streaming",
        "EM had not converged after 300 rounds for 100 users, seed 0.",
        "do not collapse",
        "are not yet the rates",
        "not nearer",
    ):
        assert claim in text
    assert "None is above 1.25" not in text


def test_bounds_are_rounded_down_and_errors_up(measured: dict[str, Any]) -> None:
    shape = measured["approximation"]["shapes"][0]
    shape |= {"name": "Weibull, shape 2", "lower_bound": 0.157635, "completely_monotone": False}
    for mixture, error in zip(shape["positive"], (0.157702, 0.1433628), strict=True):
        mixture["error"] = error
    text = markdown(page(measured))
    assert "an error of 0.157 for the Weibull (shape 2), whatever K is" in text
    assert "| positive | 1.58e-01 | 1.44e-01 | 1.0 | 0.157 |" in text
    assert "0.158" not in text


def test_rate_of_the_remark_is_what_is_seen(measured: dict[str, Any]) -> None:
    shape = measured["approximation"]["shapes"][0]
    shape["positive"][1]["error"] = 0.08
    text = markdown(page(measured))
    assert "fall like K^-0.3 for the power law, K^-0.3 from 1 to 2. Slower than 1/K for power law." in text
    assert "no rate at all" not in text
    shape |= {"completely_monotone": False, "lower_bound": 0.05}
    assert "O(1/K)" not in markdown(page(measured))  # nothing to be seen of it


def test_times_of_fixed_costs_show_nothing(measured: dict[str, Any]) -> None:
    measured["complexity"]["sweeps"][1]["seconds"] = [1.0, 1.0, 1.1, 1.2]
    text = markdown(page(measured))
    assert "below 0.75 in d costs that do not grow still weigh: such times do not show how the work grows" in text
    assert "no faster than L d K" not in text


def test_older_measurement_is_shown_and_said_to_be_older(measured: dict[str, Any]) -> None:
    assert current(measured)
    for name in ("layout", "versions", "machine"):
        del measured[name]
    del measured["complexity"]["trained"], measured["identifiability"]["training"]
    for sweep in measured["complexity"]["sweeps"]:
        for name in ("quartiles", "accumulates", "peak"):
            del sweep[name]
    for fit in measured["identifiability"]["likelihood"]:
        del fit["rounds"], fit["converged"]
    assert not current(measured)
    shown = page(measured)
    text = markdown(shown)
    for sentence in (
        "Measured by an older version, which recorded less. `python -m reproduction theory` measures anew.",
        "Multiply-accumulates and memory were not measured.",
        "Whether EM converged was not recorded.",
        "With which settings was not recorded.",
        "on which machine this page was measured was not recorded.",
        "the forward pass alone",
    ):
        assert sentence in text
    drawn = [part.draw() for part in shown.parts if isinstance(part, Picture)]
    assert [len(figure.axes) for figure in drawn] == [2, 1, 1, 2]
    plt.close("all")
