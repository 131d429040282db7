"""An epoch of mars-t on a small log with two threads, alone on the machine and beside a process that never rests.

Threads that have nothing to do spin, so that they are quick to go on, and take the time of the one that they wait for.
`GOMP_SPINCOUNT` says how long; `import marsrec` sets it unless the environment does. Each setting is a process of its
own, since the OpenMP runtime reads it once.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from benchmarks.measure import show

EPOCHS = 4
SETTINGS: dict[str, dict[str, str]] = {
    "one thread": {"OMP_NUM_THREADS": "1"},
    "as the runtime has it": {"OMP_NUM_THREADS": "2", "GOMP_SPINCOUNT": "300000"},
    "as marsrec sets it": {"OMP_NUM_THREADS": "2"},
    "never spinning": {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "PASSIVE"},
}
"""Of the environment. 300,000 turns are a part of a second, which is what the runtime has of itself."""

EPOCH = f"""
import json, marsrec
from marsrec import Recommender, TrainingSettings
from marsrec.data.hawkes import HawkesSettings, hawkes
log, _ = hawkes(HawkesSettings(users=500))
training = TrainingSettings(epochs={EPOCHS})
fitted = Recommender("mars-t", training=training).fit(log.frame, progress=False, test=False)
print(json.dumps([row["seconds"] for row in fitted.metrics["curve"]]))
"""


def seconds(environment: dict[str, str]) -> float:
    """Median time of an epoch."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    done = subprocess.run(
        [sys.executable, "-c", EPOCH], env=clean | environment, capture_output=True, text=True, check=True
    )
    return median(json.loads(done.stdout.splitlines()[-1])[1:])  # the first compiles and warms up


@contextmanager
def neighbour() -> Iterator[None]:
    """A process that takes a whole core."""
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        busy.kill()
        busy.wait()


def main() -> None:
    """Show both times of each setting, relative to those of the runtime's own setting on an idle machine."""
    found = {}
    for name, environment in SETTINGS.items():
        alone = seconds(environment)
        with neighbour():
            found[name] = alone, seconds(environment)
    usual = found["as the runtime has it"][0]
    rows = [
        [name, f"{alone:.2f} s", f"{alone / usual:.2f}", f"{beside:.2f} s", f"{beside / usual:.2f}"]
        for name, (alone, beside) in found.items()
    ]
    show("An epoch of mars-t, two threads", ["setting", "idle", "of usual", "beside a process", "of usual"], rows)


if __name__ == "__main__":
    main()
