"""The same runs on a Ray cluster: each is a task, and its result comes back to the machine that sent it."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from marsrec.atomic import atomic_file
from marsrec.errors import SettingsError, needs
from marsrec.lab.experiment import Run
from marsrec.lab.results import INSPECTIONS, RANKS
from marsrec.lab.runner import Outcome, Place, foreign_modules, in_new_process

Files = dict[str, bytes]
"""Contents by path below the folder of the results."""


def on_ray(
    address: str, missing: list[tuple[Run, Place]], deadline: float | None, threads: int
) -> Iterator[tuple[Run, Outcome]]:
    """Send runs to a Ray cluster; each run, and whether it was finished, as they end.

    The nodes need marsrec, the modules of foreign parts, and the data (the same paths, or the same `MARSREC_DATA`).
    Trained models and unfinished trainings stay in the `runs` folder of the node that did them, which all nodes see if
    it is on a shared disk: then a run that was cut short can go on anywhere.

    Parameters
    ----------
    address : str
        Of the cluster, such as "auto", "ray://head:10001", or "local" to start one on this machine.
    missing : list of (Run, Place)
        What to do.
    deadline : float, optional
        Seconds since the epoch at which runs stop.
    threads : int
        Cores per run, at most; no more than the largest node has.
    """
    with needs("ray", "--ray"):
        import ray
    given = {name: os.environ[name] for name in ("MARSREC_DATA",) if name in os.environ}
    try:
        ray.init(address=address, log_to_driver=False, runtime_env={"env_vars": given}, include_dashboard=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise SettingsError(f"--ray {address}: no Ray cluster there ({error}).") from None
    try:
        largest = max(int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"])  # type: ignore[no-untyped-call]
        threads = max(1, min(threads, largest))  # a task that needs more would wait for ever
        task = ray.remote(num_cpus=threads, max_retries=1)(_perform)
        waiting: dict[Any, tuple[Run, Place]] = {}
        for run, place in missing:
            there = replace(place, runs=place.runs.resolve(), results=place.results.resolve())
            waiting[task.remote(run, there, deadline, threads, foreign_modules(run))] = (run, place)
        while waiting:
            (ended,), _ = ray.wait(list(waiting), num_returns=1)
            run, place = waiting.pop(ended)
            try:
                files: Files | None = ray.get(ended)
            except ray.exceptions.RayError as error:  # also where a worker or a node died
                cause = getattr(error, "cause", None)
                yield run, cause if isinstance(cause, Exception) else error
                continue
            for name, content in (files or {}).items():
                with atomic_file(place.results / name) as temporary:
                    temporary.write_bytes(content)
            yield run, files is not None
    finally:
        ray.shutdown()


def _perform(run: Run, place: Place, deadline: float | None, threads: int, modules: Sequence[str]) -> Files | None:
    """On a node: do a run, and give the files of its result; None if the time did not suffice."""
    torch.set_num_threads(threads)
    if not in_new_process(run, place, deadline, modules):
        return None
    files = [f"{RANKS}/{place.name}.parquet", f"{INSPECTIONS}/{place.name}.json", f"{place.name}.json"]
    return {name: (place.results / name).read_bytes() for name in files if (place.results / name).exists()}
