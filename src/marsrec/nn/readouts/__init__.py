"""Readouts: states become the user vector. One file each."""
