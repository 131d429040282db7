"""Evaluation: full ranking, metrics of ranks and lists, groups of targets, and comparisons of two models."""
