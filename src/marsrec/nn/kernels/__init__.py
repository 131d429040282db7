"""Kernels that are worth writing by hand, each behind one signature."""
