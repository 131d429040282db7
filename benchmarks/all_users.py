"""All users of beauty in one call: ours beside RecTools' `recommend`, on the same log in one run.

RecTools lives in an environment of its own, whose interpreter RECTOOLS_PYTHON names:
`python -m venv DIR; DIR/bin/pip install "rectools[torch]"`. Without it only ours is measured. Both models are barely
trained, of the same size (SASRec, 64 wide, two blocks, 50 events), and leave out what users have seen.
"""

import os
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import polars as pl

from benchmarks.measure import show, split_like
from benchmarks.untrained import untrained

RUNS, K = 3, 10
THEIRS = """
import sys, time
import pandas as pd
from pytorch_lightning import Trainer
from rectools import Columns
from rectools.dataset import Dataset
from rectools.models import SASRecModel

log = pd.read_csv(sys.argv[1])
log.columns = [Columns.User, Columns.Item, Columns.Datetime]
log[Columns.Datetime] = pd.to_datetime(log[Columns.Datetime], unit="s")
log[Columns.Weight] = 1.0
dataset = Dataset.construct(log)
quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
model = SASRecModel(
    n_factors=64, n_blocks=2, n_heads=2, session_max_len=50, verbose=0,
    get_trainer_func=lambda: Trainer(max_steps=2, accelerator="cpu", **quiet),
    recommend_batch_size=int(sys.argv[4]),
)
model.fit(dataset)
users = dataset.user_id_map.external_ids
for _ in range(int(sys.argv[2])):
    began = time.perf_counter()
    table = model.recommend(users=users, dataset=dataset, k=int(sys.argv[3]), filter_viewed=True)
    print("seconds", time.perf_counter() - began, len(table), flush=True)
"""
BATCHES = 256, 2048
"""Users at a time in RecTools: its default, and more."""


def main() -> None:
    split, data = split_like("beauty")
    histories, rows = split.histories, []
    everybody = histories.user_ids.ids

    def ours(name: str) -> list[float]:
        recommender = untrained(name, histories)
        recommender.recommend(everybody[:100], k=K)
        seconds = []
        for _ in range(RUNS):
            began = time.perf_counter()
            table = recommender.recommend(everybody, k=K)
            seconds.append(time.perf_counter() - began)
            assert table.height == K * len(everybody)
        return seconds

    measured = {name: ours(name) for name in ("sasrec", "mars-t", "mars-m")}
    if python := os.environ.get("RECTOOLS_PYTHON"):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "log.csv"
            users = histories.user_ids.decode(np.repeat(np.arange(1, histories.n_users + 1), histories.lengths))
            items = histories.item_ids.decode(histories.items)
            pl.DataFrame({"user": users, "item": items, "time": np.asarray(histories.times)}).write_csv(file)
            for batch in BATCHES:
                run = [python, "-c", THEIRS, str(file), str(RUNS), str(K), str(batch)]
                output = subprocess.run(run, capture_output=True, text=True, check=True).stdout
                lines = [line.split() for line in output.splitlines() if line.startswith("seconds")]
                measured[f"RecTools' SASRec, {batch} users at a time"] = [float(line[1]) for line in lines]
        measured["sasrec, again"] = ours("sasrec")
    theirs = [median(seconds) for name, seconds in measured.items() if name.startswith("RecTools")]
    for name, seconds in measured.items():
        ratio = f"{min(theirs) / median(seconds):.1f}×" if theirs else ""
        rows.append([name, f"{median(seconds):.2f}", f"{len(everybody) / median(seconds):,.0f}", ratio])
    show(f"All {len(everybody):,} users of {data}, {K} items each", ["", "s", "users/s", "RecTools' best takes"], rows)


if __name__ == "__main__":
    main()
