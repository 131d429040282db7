"""The lab: grids of runs are trained, trained models become results, and results become reports, on anybody's data."""
