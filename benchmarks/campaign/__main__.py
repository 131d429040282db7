"""`python -m benchmarks.campaign --minutes N [--seed S]`: attacks at random, counted, with a table at the end.

It prints its seed; `--only KIND --case N --seed S` repeats one case. It ends with 1 if anything was lost, or ended
otherwise than by a refusal or an answer.
"""

import argparse
import contextlib
import multiprocessing
import secrets
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from random import Random

import torch

from benchmarks.campaign.case import Kind, LostError, scratch
from benchmarks.campaign.folders import Folders
from benchmarks.campaign.kills import Fits, Labs, Serves
from benchmarks.campaign.logs import Logs
from benchmarks.campaign.requests import Requests
from benchmarks.campaign.shortages import Databases, Disks

KINDS: tuple[type[Kind], ...] = (Logs, Folders, Requests, Fits, Labs, Serves, Disks, Databases)
ENDS = ("refused", "answered", "lost", "other")
HEADS = ("attack", "tried", "refused cleanly", "answered correctly", "lost", "other")


def attempt(kind: Kind, seed: int, number: int) -> tuple[str, str]:
    """One case: how it ended, and for a failure what was found."""
    place = scratch(kind.folder)
    try:
        return kind.run(Random(f"{seed} {kind.name} {number}"), place), ""
    except LostError as error:
        return "lost", str(error)
    except Exception:
        return "other", traceback.format_exc()
    except BaseException as error:  # polars' panics are no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        return "other", traceback.format_exc()
    finally:
        shutil.rmtree(place, ignore_errors=True)


def campaign(
    seed: int, seconds: float, chosen: tuple[type[Kind], ...] = KINDS, case: int | None = None, least: int = 1
) -> dict[str, dict[str, int]]:
    """Try cases of all kinds for so long and at least so many of each, or one case of each; how many ended how."""
    counts: dict[str, dict[str, int]] = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as top, contextlib.ExitStack() as started:
        kinds: list[Kind] = []
        for number, kind in enumerate(chosen):
            if (reason := kind.reason_against()) is not None:
                print(f"{kind.name}: not tried, {reason}")
                continue
            (folder := Path(top) / str(number)).mkdir()
            kinds.append(kind(folder))
            started.callback(kinds[-1].close)
            counts[kind.name] = dict.fromkeys(ENDS, 0)
        spent = {kind.name: 0.0 for kind in kinds}
        until = time.monotonic() + seconds
        while True:
            kind = min(kinds, key=lambda kind: spent[kind.name] / kind.share)
            number = sum(counts[kind.name].values()) if case is None else case
            begun = time.monotonic()
            end, told = attempt(kind, seed, number)
            spent[kind.name] += time.monotonic() - begun + 1e-6
            counts[kind.name][end] += 1
            if told:
                print(f"{end}: --only {kind.name!r} --case {number} --seed {seed}\n{told}", flush=True)
            if all(sum(ends.values()) >= least for ends in counts.values()) and (
                case is not None or time.monotonic() > until
            ):
                return counts


def table(counts: dict[str, dict[str, int]]) -> str:
    """The counts as Markdown."""
    rows = [(name, sum(ends.values()), *ends.values()) for name, ends in counts.items()]
    rows.append(("together", *(sum(column) for column in zip(*(row[1:] for row in rows), strict=True))))
    lines = [HEADS, ("---", *["---:"] * 5), *((row[0], *(f"{value:,}" for value in row[1:])) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.campaign", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, help="drawn and printed if not given")
    parser.add_argument("--only", choices=[kind.name for kind in KINDS], action="append", help="this kind of attack")
    parser.add_argument("--case", type=int, help="repeat the case of this number")
    given = parser.parse_args()
    seed = secrets.randbits(32) if given.seed is None else given.seed
    chosen = tuple(kind for kind in KINDS if given.only is None or kind.name in given.only)
    print(f"seed {seed}", flush=True)
    counts = campaign(seed, 60 * given.minutes, chosen, given.case)
    print(table(counts))
    sys.exit(any(ends["lost"] or ends["other"] for ends in counts.values()))


if __name__ == "__main__":
    torch.set_num_threads(1)
    multiprocessing.freeze_support()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # and end what was started
    main()
