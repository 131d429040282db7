"""How things are computed here: compiled kernels, threads and memory."""
