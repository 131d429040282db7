"""Encoders: embedded events become states. One file each."""
