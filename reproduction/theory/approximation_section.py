"""Proposition 1 on the page: which decays mixtures of exponentials come near to."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from marsrec.lab.page import Picture, Table
from marsrec.lab.plot import plot
from reproduction.theory.wording import Part, down, draw_line, exponent, listed, up

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SMALL = 1e-3
"""An error that counts as gone."""


def tell(measured: Mapping[str, Any]) -> list[Part]:
    """The section, from what was measured."""
    counts, shapes = measured["counts"], [{**shape, "name": _named(shape["name"])} for shape in measured["shapes"]]
    ends = {kind: {shape["name"]: shape[kind][-1]["error"] for shape in shapes} for kind in ("positive", "signed")}
    fits = {kind: [name for name, error in errors.items() if error < SMALL] for kind, errors in ends.items()}
    out = [shape for shape in shapes if shape["lower_bound"] > SMALL and not shape["jump"]]
    alone = [shape["name"] for shape in out if shape["positive"][0]["error"] < 1.01 * shape["lower_bound"]]
    jumps = [shape for shape in shapes if shape["jump"]]
    heaviest = max((mixture["total"], shape["name"]) for shape in shapes for mixture in shape["signed"])
    parts: list[Part] = [
        "## Proposition 1: approximation",
        "It says that mixtures of K exponentials come arbitrarily near to any non-increasing decay: in the text with "
        "real weights that sum to 1, in the appendix with weights in [0, 1]. A gate that is a softmax has the latter.",
        f"With K = {counts[-1]} and real weights, errors below {SMALL:g} were found for {listed(fits['signed'])}. "
        f"With weights of at least 0, for {listed(fits['positive'])}.",
    ]
    if out:
        bounds = ", ".join(f"{down(shape['lower_bound'])} for {_the(shape['name'])}" for shape in out)
        parts.append(
            f"Weights of at least 0 cannot do better than an error of {bounds}, whatever K is: a bound from linear "
            "programming duality, not from a search that gave up. Such mixtures are completely monotone (Bernstein), "
            "and these shapes are not. The appendix's proposition is therefore false for them."
            + (f" For {listed(alone)} one head already is as good as any number of them, to 1%." if alone else "")
        )
    for shape in jumps:
        least = min(mixture["error"] for kind in ("positive", "signed") for mixture in shape[kind])
        parts.append(
            f"At a jump from 1 to 0 a continuous function is wrong by at least 1/2 on one side of it, so that neither "
            f"version holds for {_the(shape['name'])}; the smallest error that was found is {least:.3f}."
        )
    parts += _rates(counts, shapes, out)
    parts.append(
        f"Real weights cancel each other: Σ|α| goes up to {heaviest[0]:,.0f} for {_the(heaviest[1])}, with no weight "
        f"beyond ±{measured['largest']:g} allowed. Figures for a given K are the best that was found, an upper bound "
        "of the best there is."
    )
    rows = [
        [
            f"{shape['name']}: {shape['formula']}",
            "yes" if shape["completely_monotone"] else "no",
            kind,
            *(up(mixture["error"]) for mixture in shape[kind]),
            f"{shape[kind][-1]['total']:.1f}",
            down(shape["lower_bound"]) if kind == "positive" else "",
        ]
        for shape in shapes
        for kind in ("positive", "signed")
    ]
    columns = ["decay on [0, 1]", "completely monotone", "weights", *(f"K = {k}" for k in counts)]
    columns += [f"Σ abs α at {counts[-1]}", "bound for all K"]
    caption = "Largest error on [0, 1] of the best mixture that was found, rounded up; bounds are rounded down."
    return [
        *parts,
        Table(columns, rows, caption),
        Picture(
            "theory-approximation",
            "Largest error against the number of heads: weights of at least 0 on the left, real weights on the right.",
            lambda: _draw_errors(counts, shapes),
        ),
    ]


def _rates(counts: Sequence[int], shapes: Sequence[Mapping[str, Any]], out: Sequence[Mapping[str, Any]]) -> list[Part]:
    """Whether errors fall as the remark to the proposition says, with 1 / K."""
    falls, slow = [], []
    for shape in (shape for shape in shapes if shape["completely_monotone"]):
        errors = [mixture["error"] for mixture in shape["positive"]]
        if len(errors) < 2 or min(errors) <= 0:  # exact: no power of K
            continue
        power, last = exponent(counts, errors), exponent(counts[-2:], errors[-2:])
        falls.append(f"K^{power:.1f} for {_the(shape['name'])}, K^{last:.1f} from {counts[-2]} to {counts[-1]}")
        if max(power, last) > -1:
            slow.append(shape["name"])
    if not falls:
        return []
    verdict = (
        f"Slower than 1/K for {listed(slow)}."
        if slow
        else f"That is faster than 1/K: up to K = {counts[-1]} the remark's rate holds for them as a bound, and is not "
        "the rate that is seen."
    )
    never = (
        " It is claimed for any monotone decay that is smooth enough, though. For those that weights of at least 0 "
        "cannot come near to, there is no rate at all."
        if out
        else ""
    )
    return [
        "The remark to the proposition gives an error of O(1/K). Over all K, the errors found with weights of at least "
        f"0 for completely monotone decays fall like {'; '.join(falls)}. {verdict}{never}"
    ]


def _draw_errors(counts: Sequence[int], shapes: Sequence[Mapping[str, Any]]) -> "Figure":
    figure, axes = plot(2, height=4.2, share_y=True)
    titles = {"positive": "weights ≥ 0 (appendix)", "signed": "real weights (text)"}
    for axis, kind in zip(axes, titles, strict=True):
        for index, shape in enumerate(shapes):
            errors = [mixture["error"] for mixture in shape[kind]]
            draw_line(axis, index, counts, errors, shape["name"])
        axis.set(title=titles[kind], xlabel="number K of exponentials (heads)", xscale="log", yscale="log")
        axis.set_xticks(counts, [str(count) for count in counts])
        axis.minorticks_off()
    axes[0].set_ylabel("largest error on [0, 1] (the decay begins at 1)")
    axes[0].legend(frameon=False, fontsize=8, loc="lower left")
    return figure


def _named(name: str) -> str:
    """A name that can stand in a list: Weibull (shape 2) for Weibull, shape 2."""
    name, _, detail = name.partition(", ")
    return f"{name} ({detail})" if detail else name


def _the(name: str) -> str:
    return f"the {name}"
