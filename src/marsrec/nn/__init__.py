"""Histories become user vectors and scores: encoders, readouts, scorers, objectives, the operator and its kernels."""
