"""Proposition 1 in numbers: how well mixtures of K exponentials come near to decays of several shapes.

The proposition is stated twice: with real weights in the paper's text, with weights in [0, 1] in its appendix. An
error that is found for K rates is an upper bound of the best one, by a search that may miss it. For weights that are
not negative there is also a lower bound, for all K at once, that no search can miss: it comes from linear programming
duality and is checked apart from the solver.

Time goes from 0 to 1 throughout; the unit of the rates is 1 over the length of the interval.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.special import ndtr

Floats = NDArray[np.float64]

SLOWEST, FASTEST = 1e-9, 1e12  # rates: practically constant, and gone at once
LARGEST = 100.0  # bound of a signed weight: larger ones only cancel each other
EARLIEST = 1e-10  # the first moment after 0 that is looked at
STEPS = 40  # of the local search, at most
COUNTS = (1, 2, 4, 8, 16, 32)
QUICK_COUNTS = (1, 2, 4)


@dataclass(frozen=True)
class Shape:
    """A decay on [0, 1] that begins at 1 and never grows."""

    formula: str
    decay: Callable[[Floats], Floats]
    completely_monotone: bool
    """Whether it is a positive mixture of exponentials (Bernstein), possibly of infinitely many."""
    jump: float | None = None
    """Where it falls from 1 to 0 at once."""
    gap: float = 0.0
    """Width around the jump where nobody looks."""

    def points(self, count: int) -> tuple[Floats, Floats]:
        """Moments, `count` on a linear and twice as many on a log scale, and the values there; a jump has both."""
        times = np.concatenate([[0.0], np.geomspace(EARLIEST, 1, 2 * count), np.linspace(0, 1, count)])
        times = np.unique(times)
        values = self.decay(times)
        if self.jump is None:
            return times, values
        kept = np.abs(times - self.jump) > self.gap / 2
        sides = np.array([self.jump - self.gap / 2, self.jump + self.gap / 2])
        return np.append(times[kept], sides), np.append(values[kept], [1.0, 0.0])


SHAPES = {
    "power law": Shape("1 / (1 + 100 t)", lambda t: 1 / (1 + 100 * t), True),
    "Weibull, shape 1/2": Shape("exp(-√(10 t))", lambda t: np.exp(-np.sqrt(10 * t)), True),
    "Weibull, shape 2": Shape("exp(-(2 t)²)", lambda t: np.exp(-((2 * t) ** 2)), False),
    "log-normal survival": Shape("Φ(-log(5 t))", lambda t: ndtr(-np.log(np.maximum(5 * t, 1e-300))), False),
    "linear ramp": Shape("1 - t", lambda t: 1 - t, False),
    "step": Shape("1 until t = 1/2, then 0", lambda t: np.where(t <= 0.5, 1.0, 0.0), False, jump=0.5),
    "step, jump left out": Shape(
        "the step, without 0.45 < t < 0.55", lambda t: np.where(t <= 0.5, 1.0, 0.0), False, jump=0.5, gap=0.1
    ),
}


@dataclass(frozen=True)
class Mixture:
    """Σ_k α_k exp(-λ_k t), with weights that sum to 1."""

    rates: list[float]
    weights: list[float]
    error: float
    """Largest distance from the shape on a fine grid."""

    @property
    def total(self) -> float:
        """Σ |α_k|: 1 if none is negative, and large where large terms cancel each other."""
        return float(np.abs(self.weights).sum())


def best_found(
    shape: Shape, counts: Sequence[int] = COUNTS, *, signed: bool, points: int = 80, steps: int = STEPS
) -> list[Mixture]:
    """The best mixtures of at most K rates that were found, for each K of `counts`, in growing order.

    The search starts from several spreads of the rates and goes on by sequential linear programming: the mixture is
    linear in its weights and nearly so in small steps of the log rates, and the linear program finds the step that
    makes the largest error smallest.

    Parameters
    ----------
    shape : Shape
        What to come near to.
    counts : sequence of int
        Numbers K of rates.
    signed : bool
        Whether weights may be negative; their sum is 1 either way.
    points : int
        The search looks at three times as many moments; errors are measured on ten times that.
    steps : int
        Longest local search.

    Examples
    --------
    >>> two = Shape("two rates", lambda t: 0.3 * np.exp(-t) + 0.7 * np.exp(-20 * t), True)
    >>> one, both = best_found(two, (1, 2), signed=False, points=60)
    >>> one.error > 0.05, both.error < 1e-9, np.round(sorted(both.rates), 4).tolist()
    (True, True, [1.0, 20.0])
    """
    times, values = shape.points(points)
    fine, target = shape.points(10 * points)
    search = _Search(times, values, signed, steps)
    found: list[Mixture] = []
    for count in counts:
        starts = sorted((search.weigh(theta) for theta in _spreads(count)), key=lambda start: start[2])[:2]
        if found:
            starts.append(search.weigh(_enriched(np.log(found[-1].rates), count)))
        candidates = list(found[-1:])  # a smaller mixture is one of more rates, some of which weigh nothing
        for theta, weights, error in starts:
            theta, weights = search.polish(theta, weights, error)
            reached = float(np.abs(_basis(fine, theta) @ weights - target).max())
            candidates.append(Mixture(np.exp(theta).tolist(), weights.tolist(), reached))
        found.append(min(candidates, key=lambda mixture: mixture.error))
    return found


def lower_bound(shape: Shape, *, points: int = 80, rates: int = 600) -> float:
    """An error that no mixture with weights ≥ 0 that sum to 1 can go below, however many rates it has.

    For any ν on moments t_i with Σ |ν_i| ≤ 1, the error is at least Σ ν_i φ(t_i) - max_λ Σ ν_i exp(-λ t_i). The dual of
    the fit over many rates gives a good ν. The maximum over all λ is then bounded on a dense grid of log λ, on which
    the second derivative of the sum is known to be below 0.31.

    Examples
    --------
    >>> [round(lower_bound(SHAPES[name], points=40, rates=200), 2) for name in ("power law", "linear ramp", "step")]
    [0.0, 0.14, 0.5]
    """
    times, values = shape.points(points)
    theta = np.linspace(np.log(1e-4), np.log(1e6), rates)
    basis = np.hstack([np.ones((len(times), 1)), _basis(times, theta), (times == 0)[:, None]])
    one = np.ones((len(times), 1))
    for method in ("highs", "highs-ipm", "highs-ds"):  # each may give up on a badly scaled program
        solved = linprog(
            np.append(np.zeros(basis.shape[1]), 1.0),
            A_ub=np.vstack([np.hstack([basis, -one]), np.hstack([-basis, -one])]),
            b_ub=np.append(values, -values),
            A_eq=np.append(np.ones(basis.shape[1]), 0.0)[None],
            b_eq=[1.0],
            method=method,
        )
        if solved.ineqlin.marginals is not None:
            break
    else:
        return 0.0  # a bound as well, though it says nothing
    above, below = np.split(-solved.ineqlin.marginals, 2)
    dual = below - above
    dual /= max(1.0, float(np.abs(dual).sum()))
    return max(0.0, float(dual @ values) - _largest(dual, times))


def measure(quick: bool = False) -> dict[str, Any]:
    """Errors of the best mixtures that were found, for all shapes, with and without signs, and the lower bounds."""
    counts, points, steps = (QUICK_COUNTS, 40, 20) if quick else (COUNTS, 80, STEPS)
    shapes = []
    for name, shape in SHAPES.items():
        found = {
            kind: best_found(shape, counts, signed=kind == "signed", points=points, steps=steps)
            for kind in ("positive", "signed")
        }
        shapes.append(
            {
                "name": name,
                "formula": shape.formula,
                "completely_monotone": shape.completely_monotone,
                "jump": shape.jump is not None and shape.gap == 0,
                "lower_bound": lower_bound(shape, points=points),
                **{kind: [asdict(m) | {"total": m.total} for m in mixtures] for kind, mixtures in found.items()},
            }
        )
    return {"counts": list(counts), "largest": LARGEST, "shapes": shapes}


def _largest(dual: Floats, times: Floats) -> float:
    """A bound from above of Σ ν_i exp(-λ t_i) over all λ from 0 to ∞."""
    times, dual = times[dual != 0], dual[dual != 0]
    logs, step = np.linspace(np.log(1e-7), np.log(1e13), 60_000, retstep=True)
    on_grid = max(float((_basis(times, part).T @ dual).max()) for part in np.array_split(logs, 30))
    slower = float(dual.sum()) + 1e-7  # below the grid no term moves further than λ t
    faster = float(dual[times == 0].sum())  # above it only t = 0 is left
    return max(on_grid + 0.31 * float(step) ** 2 / 8, slower, faster)


def _basis(times: Floats, theta: Floats) -> Floats:
    """exp(-λ t) of moments and log rates: (times, rates)."""
    basis: Floats = np.exp(-times[:, None] * np.exp(theta))
    return basis


def _spreads(count: int) -> list[Floats]:
    """Log rates to start from: geometric ones, which suit long tails, and multiples of one rate, polynomials in it."""
    if count == 1:
        return [np.log([rate]) for rate in (0.3, 1.0, 3.0, 10.0, 30.0)]
    geometric = [np.geomspace(low, high, count) for low in (0.1, 1.0) for high in (10.0, 1e3, 1e5, 1e7, 1e9)]
    multiples = [SLOWEST + base * np.arange(count) for base in (0.3, 1.0, 3.0)]
    return [np.log(rates) for rates in geometric + multiples]


def _enriched(theta: Floats, count: int) -> Floats:
    """Log rates with new ones among and around them."""
    more = np.linspace(theta.min() - 2, theta.max() + 2, count - len(theta))
    enriched: Floats = np.clip(np.append(theta, more), np.log(SLOWEST), np.log(FASTEST))
    return enriched


@dataclass(frozen=True)
class _Search:
    """Minimax fits on a grid of moments."""

    times: Floats
    values: Floats
    signed: bool
    steps: int

    def weigh(self, theta: Floats) -> tuple[Floats, Floats, float]:
        """The best weights of given log rates, and their error."""
        weights = np.eye(len(theta))[0]
        error = self._error(theta, weights)
        for _ in range(2):  # the second time on the scale of the error that is left
            new = self._moved(theta, weights, error, trust=0.0)[1]
            if (reached := self._error(theta, new)) < error:
                weights, error = new, reached
        return theta, weights, error

    def polish(self, theta: Floats, weights: Floats, error: float) -> tuple[Floats, Floats]:
        """Move log rates and weights together as long as that helps."""
        trust, idle = 0.5, 0
        for _ in range(self.steps):
            moved = self._moved(theta, weights, error, trust)
            reached = self._error(*moved)
            if reached < error:
                idle = idle + 1 if reached > 0.999 * error else 0
                trust = min(2 * trust, 1.0)
                (theta, weights), error = moved, reached
            else:
                trust /= 4
            if trust < 1e-6 or idle == 5 or error < 1e-13:
                break
        return theta, weights

    def _error(self, theta: Floats, weights: Floats) -> float:
        return float(np.abs(_basis(self.times, theta) @ weights - self.values).max())

    def _moved(self, theta: Floats, weights: Floats, error: float, trust: float) -> tuple[Floats, Floats]:
        """The step that makes the linearised largest error smallest; no log rate moves further than `trust`."""
        basis = _basis(self.times, theta)
        residual = (basis @ weights - self.values) / error  # steps are in units of the error, as solvers want
        lowest, highest = (-LARGEST, LARGEST) if self.signed else (0.0, 1.0)
        slopes = [basis]
        bounds = [((lowest - w) / error, (highest - w) / error) for w in weights]
        if trust > 0:
            slopes.append(-self.times[:, None] * basis * np.exp(theta) * weights)
            ends = np.log([SLOWEST, FASTEST])
            bounds += [(max(-trust, ends[0] - x) / error, min(trust, ends[1] - x) / error) for x in theta]
        slope, one = np.hstack(slopes), np.ones((len(self.times), 1))
        total = np.zeros(slope.shape[1] + 1)
        total[: len(weights)] = 1.0
        solved = linprog(
            np.append(np.zeros(slope.shape[1]), 1.0),
            A_ub=np.vstack([np.hstack([slope, -one]), np.hstack([-slope, -one])]),
            b_ub=np.append(-residual, residual),
            A_eq=total[None],
            b_eq=[0.0],
            bounds=[*bounds, (0, None)],
        )
        if solved.x is None:  # the solver gave up on a badly scaled program
            return theta, weights
        step = error * solved.x[:-1]
        weights = np.clip(weights + step[: len(weights)], lowest, highest)
        return (theta + step[len(weights) :] if trust > 0 else theta), weights / weights.sum()
