"""`python -m benchmarks [NAME …]`: run all benchmarks, or those named. Nothing else should run meanwhile."""

import sys
from importlib import import_module

import torch

ALL = (
    "linear_cross_entropy",
    "selective_scan",
    "kernels",
    "training",
    "recipes",
    "long_histories",
    "streaming",
    "sessions",
    "evaluation",
)

if __name__ == "__main__":
    chosen = sys.argv[1:] or ALL
    if unknown := set(chosen) - set(ALL):
        sys.exit(f"unknown benchmark {', '.join(sorted(unknown))}; there are {', '.join(ALL)}")
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}")
    for name in chosen:
        import_module(f"benchmarks.{name}").main()
