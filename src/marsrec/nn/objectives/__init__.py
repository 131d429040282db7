"""Objectives: what a model is trained to predict. One file each."""
