"""The paper's figures, as published: what results are shown beside. Test × 100, means of five seeds for MARS."""

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
