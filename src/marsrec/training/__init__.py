"""Training: the objective, the Lightning module, fit and its checkpoints."""
