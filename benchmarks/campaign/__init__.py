"""Attacks that go on at random: `python -m benchmarks.campaign --minutes N`."""
