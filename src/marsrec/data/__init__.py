"""A log becomes histories: reading, checking, filtering, splitting and batching."""
