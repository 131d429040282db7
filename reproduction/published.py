"""The paper's figures, as published: what results are shown beside. Test × 100, means of five seeds for MARS."""

from collections.abc import Mapping, Sequence

METRICS = ("HR@10", "NDCG@10", "MRR@10")
"""What the paper measures."""

Figures = tuple[float, float, float]
"""HR@10, NDCG@10 and MRR@10."""

MAIN: dict[str, dict[str, Figures]] = {
    "beauty": {
        "gru4rec": (5.82, 3.25, 2.47),
        "bert4rec": (3.94, 1.95, 1.36),
        "narm": (6.03, 3.45, 2.67),
        "sasrec": (8.04, 4.1, 2.9),
        "tisasrec": (8.78, 4.45, 3.12),
        "fearec": (7.83, 4.08, 2.92),
        "core": (6.49, 2.59, 1.44),
        "mamba4rec": (6.62, 4.12, 3.36),
        "echomamba4rec": (6.93, 4.3, 3.5),
        "sigma": (6.03, 3.43, 2.64),
        "mars-t": (8.84, 4.4, 3.04),
        "mars-m": (8.02, 4.13, 2.94),
    },
    "sports": {
        "gru4rec": (3.06, 1.58, 1.13),
        "bert4rec": (1.66, 0.81, 0.56),
        "narm": (3.12, 1.6, 1.14),
        "sasrec": (4.53, 2.14, 1.41),
        "tisasrec": (4.84, 2.3, 1.52),
        "fearec": (4.6, 2.19, 1.44),
        "core": (3.24, 1.26, 0.69),
        "mamba4rec": (3.5, 2.08, 1.65),
        "echomamba4rec": (3.4, 2.08, 1.67),
        "sigma": (3.2, 1.77, 1.33),
        "mars-t": (5.22, 2.43, 1.57),
        "mars-m": (4.73, 2.26, 1.51),
    },
    "games": {
        "gru4rec": (7.8, 4.05, 2.92),
        "bert4rec": (6.69, 3.49, 2.53),
        "narm": (10.15, 5.24, 3.77),
        "sasrec": (8.86, 4.34, 2.97),
        "tisasrec": (12.07, 5.9, 4.03),
        "fearec": (8.64, 4.2, 2.84),
        "core": (8.84, 3.61, 2.06),
        "mamba4rec": (8.02, 4.21, 3.05),
        "echomamba4rec": (8.02, 4.18, 3.01),
        "sigma": (8.1, 4.2, 3.03),
        "mars-t": (12.07, 5.51, 3.52),
        "mars-m": (12.01, 5.62, 3.68),
    },
    "ml-1m": {
        "gru4rec": (29.37, 16.9, 13.1),
        "bert4rec": (23.11, 11.87, 8.48),
        "narm": (29.37, 16.58, 12.67),
        "sasrec": (29.62, 16.61, 12.65),
        "tisasrec": (24.9, 13.42, 9.93),
        "fearec": (28.05, 15.63, 11.86),
        "core": (15.55, 6.79, 4.18),
        "mamba4rec": (30.28, 17.72, 13.88),
        "echomamba4rec": (31.04, 18.0, 14.03),
        "sigma": (31.79, 18.63, 14.6),
        "mars-t": (29.04, 16.39, 12.52),
        "mars-m": (32.8, 18.8, 14.52),
    },
    "yelp": {
        "gru4rec": (2.98, 1.65, 1.25),
        "bert4rec": (2.38, 1.21, 0.86),
        "narm": (3.42, 1.89, 1.42),
        "sasrec": (5.41, 3.64, 3.1),
        "tisasrec": (5.62, 3.84, 3.3),
        "fearec": (4.79, 3.42, 3.0),
        "core": (6.14, 3.65, 2.89),
        "mamba4rec": (4.35, 2.55, 2.0),
        "echomamba4rec": (3.79, 2.13, 1.63),
        "sigma": (3.8, 2.12, 1.61),
        "mars-t": (6.45, 4.22, 3.53),
        "mars-m": (5.97, 3.89, 3.25),
    },
}
"""Table main, by data set and model."""

DEVIATIONS: dict[str, dict[str, Figures]] = {
    "beauty": {"mars-t": (0.14, 0.06, 0.06), "mars-m": (0.23, 0.08, 0.04)},
    "sports": {"mars-t": (0.08, 0.04, 0.03), "mars-m": (0.19, 0.07, 0.05)},
    "games": {"mars-t": (0.16, 0.09, 0.07), "mars-m": (0.42, 0.11, 0.07)},
    "ml-1m": {"mars-t": (0.7, 0.5, 0.45), "mars-m": (0.45, 0.32, 0.29)},
    "yelp": {"mars-t": (0.04, 0.01, 0.01), "mars-m": (0.04, 0.01, 0.02)},
}
"""Standard deviations over five seeds in table main; the baselines have one seed each."""

ABLATION: dict[str, dict[str, dict[str, Figures]]] = {
    "mars-t": {
        "beauty": {
            "full": (8.95, 4.46, 3.1),
            "backbone": (8.53, 4.22, 2.89),
            "b1": (8.69, 4.39, 3.07),
            "b2": (8.94, 4.41, 3.02),
            "b3": (8.9, 4.41, 3.04),
            "b4": (8.88, 4.41, 3.04),
            "single": (8.8, 4.38, 3.03),
        },
        "sports": {
            "full": (5.28, 2.45, 1.59),
            "backbone": (4.89, 2.29, 1.49),
            "b1": (5.16, 2.41, 1.57),
            "b2": (5.21, 2.4, 1.55),
            "b3": (5.21, 2.4, 1.54),
            "b4": (5.12, 2.37, 1.52),
            "single": (5.27, 2.42, 1.55),
        },
        "games": {
            "full": (12.34, 5.67, 3.62),
            "backbone": (11.75, 5.55, 3.55),
            "b1": (12.32, 5.59, 3.55),
            "b2": (12.32, 5.64, 3.61),
            "b3": (12.14, 5.54, 3.54),
            "b4": (12.26, 5.61, 3.59),
            "single": (12.23, 5.6, 3.59),
        },
        "ml-1m": {
            "full": (29.3, 16.38, 12.43),
            "backbone": (30.33, 17.36, 13.42),
            "b1": (29.82, 17.12, 13.24),
            "b2": (29.25, 16.44, 12.53),
            "b3": (29.22, 16.51, 12.62),
            "b4": (28.41, 15.9, 12.08),
            "single": (27.45, 15.18, 11.42),
        },
        "yelp": {
            "full": (6.5, 4.25, 3.56),
            "backbone": (5.36, 3.72, 3.23),
            "b1": (6.49, 4.23, 3.54),
            "b2": (6.39, 4.19, 3.52),
            "b3": (6.37, 4.18, 3.52),
            "b4": (6.33, 4.16, 3.5),
            "single": (6.42, 4.19, 3.51),
        },
    },
    "mars-m": {
        "beauty": {
            "full": (8.01, 4.08, 2.88),
            "backbone": (8.15, 4.19, 2.97),
            "b1": (7.47, 4.08, 3.04),
            "b2": (7.74, 4.02, 2.88),
            "b3": (8.01, 4.06, 2.85),
            "b4": (8.01, 4.08, 2.88),
            "single": (7.87, 4.03, 2.85),
        },
        "sports": {
            "full": (4.68, 2.27, 1.53),
            "backbone": (4.39, 2.22, 1.55),
            "b1": (4.8, 2.29, 1.52),
            "b2": (4.66, 2.26, 1.52),
            "b3": (4.69, 2.26, 1.52),
            "b4": (4.68, 2.27, 1.53),
            "single": (4.81, 2.31, 1.54),
        },
        "games": {
            "full": (12.37, 5.81, 3.81),
            "backbone": (12.07, 5.83, 3.93),
            "b1": (11.87, 5.56, 3.64),
            "b2": (12.28, 5.78, 3.8),
            "b3": (12.28, 5.78, 3.8),
            "b4": (12.34, 5.79, 3.79),
            "single": (12.36, 5.78, 3.79),
        },
        "ml-1m": {
            "full": (32.8, 18.8, 14.52),
            "backbone": (32.4, 18.5, 14.3),
            "b1": (32.3, 18.4, 14.2),
            "b2": (32.1, 18.4, 14.1),
            "b3": (31.5, 18.1, 13.9),
            "b4": (32.4, 18.4, 14.2),
            "single": (32.5, 18.4, 14.1),
        },
        "yelp": {
            "full": (5.99, 3.89, 3.25),
            "backbone": (5.44, 3.66, 3.12),
            "b1": (6.07, 3.86, 3.18),
            "b2": (5.91, 3.86, 3.24),
            "b3": (5.97, 3.88, 3.23),
            "b4": (5.99, 3.87, 3.22),
            "single": (6.12, 3.93, 3.26),
        },
    },
}
"""The two full ablation tables of the appendix, by model, data set and variant."""

HEADS: dict[str, dict[str, dict[float, tuple[float, ...]]]] = {
    "mars-t": {
        "beauty": {
            1: (8.69, 4.29, 2.95),
            2: (8.96, 4.38, 2.97),
            4: (9.01, 4.42, 3.02),
            8: (9.03, 4.48, 3.09),
            16: (8.9, 4.46, 3.11),
        },
        "ml-1m": {1: (27.45,), 2: (27.92,), 4: (28.15,), 8: (28.23,), 16: (29.22,)},
    },
    "mars-m": {"ml-1m": {1: (32.2,), 2: (32.34,), 4: (32.46,), 8: (32.58,), 16: (32.51,)}},
}
"""All metrics or HR@10 alone by number of decay heads, by model and data set."""

DROPOUT: dict[str, dict[float, tuple[float, ...]]] = {
    "beauty": {0.1: (8.33,), 0.2: (8.27,), 0.3: (8.59,), 0.5: (8.56,), 0.7: (8.19,)},
    "ml-1m": {0.1: (31.64,), 0.2: (30.4,), 0.3: (27.78,), 0.5: (25.58,), 0.7: (22.05,)},
}
"""HR@10 by dropout of the encoder, by data set. The paper does not name the backbone."""

EFFICIENCY: dict[str, dict[str, tuple[float, float, float, float]]] = {
    "beauty": {
        "gru4rec": (857, 4.14, 0.044, 1.8),
        "bert4rec": (894, 5.32, 0.907, 1.19),
        "sasrec": (878, 5.1, 0.197, 1.22),
        "fearec": (878, 12.43, 0.726, 1.4),
        "mamba4rec": (847, 1.68, 0.124, 0.89),
        "echomamba4rec": (864, 2.52, 0.348, 1.38),
        "sigma": (905, 5.8, 0.3, 1.31),
        "mars-t": (896, 5.05, 0.151, 1.05),
        "mars-m": (937, 3.4, 0.237, 0.89),
    },
    "ml-1m": {
        "gru4rec": (301, 16.56, 0.035, 7.07),
        "bert4rec": (339, 22.7, 0.503, 11.97),
        "sasrec": (332, 21.83, 0.313, 12.56),
        "fearec": (332, 49.72, 0.726, 5.93),
        "mamba4rec": (291, 6.71, 0.097, 3.09),
        "echomamba4rec": (308, 10.09, 0.276, 5.05),
        "sigma": (349, 23.18, 0.251, 5.12),
        "mars-t": (350, 20.27, 0.173, 4.56),
        "mars-m": (382, 13.48, 0.181, 3.11),
    },
}
"""Thousands of parameters, "MFLOPs" (millions of multiply-accumulates), seconds and gigabytes on a V100."""

SUBGROUPS: dict[tuple[str, str], tuple[tuple[float, float], ...]] = {
    ("beauty", "mars-t"): ((6.57, 7.98), (7.66, 8.40), (12.89, 14.49), (20.26, 18.95)),
    ("sports", "mars-t"): ((4.13, 5.30), (3.91, 4.97), (3.25, 4.35), (2.25, 5.62)),
    ("games", "mars-t"): ((12.05, 11.31), (10.91, 10.94), (10.09, 10.25), (8.10, 8.91)),
    ("yelp", "mars-t"): ((5.69, 6.93), (5.20, 6.50), (4.36, 5.49), (3.64, 4.72)),
    ("ml-1m", "mars-t"): ((7.92, 8.04), (18.43, 19.13), (27.51, 27.85), (30.85, 29.96)),
    ("ml-1m", "mars-m"): ((8.21, 8.68), (18.86, 20.32), (28.42, 30.97), (31.45, 34.01)),
}
"""HR@10 of the baseline and of MARS for users with short, medium, long and very long histories."""

ENTROPY: dict[str, tuple[float, float]] = {
    "beauty": (0.785, 0.745),
    "sports": (0.812, 0.77),
    "yelp": (0.838, 0.798),
    "games": (0.87, 0.831),
    "ml-1m": (0.512, 0.432),
}
"""Normalised attention entropy of a trained SASRec, by layer."""

ENTROPY_GAINS: dict[str, float] = {"beauty": 0.0995, "sports": 0.135, "yelp": 0.192, "games": 0.362, "ml-1m": -0.029}
"""Gains of MARS in HR@10 that stand beside the entropies: of mars-t over the best Transformer without time, which is
fearec on sports and sasrec on the others; on ml-1m over sasrec for the users with the longest histories alone."""


def shown(theirs: Sequence[float] | None, deviations: Sequence[float] | None = None) -> str:
    """The paper's figures as a cell, with their deviations over seeds if it gives them.

    Examples
    --------
    >>> shown((8.95, 4.46)), shown((8.84,), (0.14,)), shown(None)
    ('8.95 / 4.46', '8.84 ± 0.14', 'none')
    """
    around = [f" ± {deviation:.2f}" for deviation in deviations or ()] or [""] * len(theirs or ())
    return " / ".join(f"{figure:.2f}{other}" for figure, other in zip(theirs or (), around, strict=True)) or "none"


def against(ours: Sequence[float], theirs: Sequence[float] | None) -> str:
    """How much higher ours are than the paper's, as far as it has them.

    Examples
    --------
    >>> against((9.0, 4.0, 3.0), (8.0, 5.0)), against((9.0,), None)
    ('+12.5% / -20.0%', '')
    """
    return " / ".join(f"{mine / figure - 1:+.1%}" for mine, figure in zip(ours, theirs or (), strict=False))


def in_points(ours: float, theirs: float | None) -> str:
    """How much higher a gain of ours is than the paper's, in percentage points."""
    return "" if theirs is None else f"{100 * (ours - theirs):+.1f} points"


def not_run(lacking: Mapping[str, Sequence[str]]) -> list[str]:
    """A sentence that names what the paper has and was not run, by model and data; none if nothing is lacking.

    Examples
    --------
    >>> not_run({"mars-t": ["sports", "yelp"], "mars-m": []})
    ['Not run: mars-t on sports, yelp.']
    """
    named = [f"{model} on {', '.join(data)}" for model, data in lacking.items() if data]
    return [f"Not run: {'; '.join(named)}."] if named else []
