"""Histories become user vectors: encoders, readouts, scorers and their kernels."""
