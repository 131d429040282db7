"""Training: settings, the Lightning module, fit, its progress and its checkpoints."""
