"""`python -m benchmarks [NAME …]`: run the usual benchmarks, or those named. Nothing else should run meanwhile.

Every file of this folder that has a `main` can be named. Of these the usual ones leave out serving, which loads the
machine for a quarter of an hour, and tie_order, which trains models.
"""

import sys
from importlib import import_module
from pathlib import Path

import torch

USUAL = (
    "linear_cross_entropy",
    "selective_scan",
    "kernels",
    "training",
    "recipes",
    "long_histories",
    "streaming",
    "sessions",
    "answers",
    "evaluation",
)

if __name__ == "__main__":
    chosen = sys.argv[1:] or USUAL
    there = sorted(file.stem for file in Path(__file__).parent.glob("*.py") if "\ndef main(" in file.read_text())
    if unknown := set(chosen) - set(there):
        sys.exit(f"unknown benchmark {', '.join(sorted(unknown))}; there are {', '.join(there)}")
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}")
    for name in chosen:
        import_module(f"benchmarks.{name}").main()
