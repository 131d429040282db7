"""Evaluation: full ranking, metrics and subgroups."""
