"""Running experiments: what is missing is trained, what was begun goes on, and what is finished stays."""

import logging
import os
import signal
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from typing import Any, Literal

import polars as pl
import torch

from marsrec.atomic import LOCK, alone
from marsrec.data.hawkes import HawkesSettings, hawkes
from marsrec.data.histories import Histories, Ties
from marsrec.data.source import EMBEDDED, Source, open_data
from marsrec.data.splits import SplitSettings
from marsrec.errors import MarsrecError, SettingsError
from marsrec.lab.experiment import Run
from marsrec.lab.results import TRIALS, Result, record, result_name
from marsrec.models import title
from marsrec.nn.settings import ModelSettings
from marsrec.recommender import Recommender
from marsrec.training.settings import CHECKPOINT, CURVE

log = logging.getLogger(__name__)

State = Literal["done", "running", "begun", "missing"]


Outcome = bool | Exception
"""Whether a run was finished, or what went wrong."""


@dataclass(frozen=True)
class Place:
    """Where a run's training state, its saved model and its result are."""

    name: str
    runs: Path
    results: Path

    @property
    def model(self) -> Path:
        """The saved recommender."""
        return self.runs / self.name

    @property
    def state(self) -> Path:
        """The unfinished training."""
        return self.runs / f"{self.name}.training"

    @property
    def result(self) -> Path:
        """The result."""
        return self.results / f"{self.name}.json"

    def progress(self) -> State:
        """How far the run has come."""
        if self.result.exists() and Result.model_validate_json(self.result.read_bytes()).name == self.name:
            return "done"
        if self.running():
            return "running"
        return "begun" if (self.state / CHECKPOINT).exists() else "missing"

    def running(self) -> bool:
        """Whether a process works on it."""
        if not (self.state / LOCK).exists():
            return False
        try:
            with self.mine():
                return False
        except SettingsError:
            return True

    @contextmanager
    def mine(self) -> Iterator[None]:
        """Keep other processes off the run; raises if one works on it. The lock ends with the process that holds it."""
        with alone(self.state, "run"):
            yield

    def curve(self) -> list[dict[str, Any]]:
        """Whole epochs of a run that was begun."""
        begun = (self.state / CHECKPOINT).exists() and (self.state / CURVE).exists()
        return pl.read_csv(self.state / CURVE).to_dicts() if begun else []


def source_of(run: Run) -> Source:
    """The data of a run; the runs of an experiment share them."""
    generator = HawkesSettings(**run.hawkes)
    if run.hawkes and run.data != EMBEDDED:
        raise SettingsError(f"{run.title}: hawkes settings are for data {EMBEDDED!r}, not for {run.data!r}.")
    return _opened(run.data, generator.model_dump_json(), run.latest, run.ties, run.change)


@cache
def _opened(data: str, generator: str, latest: int | None, ties: Ties, change: str) -> Source:
    if data == EMBEDDED:
        log, _ = hawkes(HawkesSettings.model_validate_json(generator))
        source = Source(Histories.from_log(log, ties), data, synthetic=True)
    else:
        source = open_data(data, ties=ties)
    histories = source.histories.latest(latest) if latest else source.histories
    return replace(source, name=f"{source.name}{change}", histories=histories)


def recommender_of(run: Run) -> Recommender:
    """The recommender that a run trains."""
    return Recommender(
        run.model,
        encoder=run.encoder,
        readout=run.readout,
        scorer=run.scorer,
        objective=run.objective,
        options=run.options,
        published=run.published,
        training=run.training,
    )


def model_of(run: Run) -> ModelSettings:
    """The model that a run trains."""
    source = source_of(run)
    average_length = SplitSettings().apply(source.histories).average_length
    return recommender_of(run).planned_settings(average_length, source.public)


def place_of(run: Run, runs: Path, results: Path) -> Place:
    """Where a run belongs, by all that decides its result."""
    source, settings, training = source_of(run), model_of(run), recommender_of(run).training
    name = result_name(source.name, title(settings), source.histories.fingerprint, settings, training, SplitSettings())
    return Place(name, runs / TRIALS, results / TRIALS) if run.selection else Place(name, runs, results)


def perform(run: Run, place: Place, max_minutes: float | None = None, progress: bool = False) -> bool:
    """Train to the end, save, and write the result; False if the time did not suffice, and the next call goes on."""
    with place.mine():
        return _perform(run, place, max_minutes, progress)


def _perform(run: Run, place: Place, max_minutes: float | None, progress: bool) -> bool:
    if not place.model.exists():
        recommender = recommender_of(run)
        training = recommender.training
        recommender.training = training.model_copy(update={"max_minutes": max_minutes})
        recommender.fit(source_of(run), test=not run.selection, folder=place.state, resume=True, progress=progress)
        if not recommender.metrics["complete"]:
            return False
        recommender.training = training
        recommender.save(place.model)
    written = record(place.model, place.results)
    if progress:
        part, reached = Result.model_validate_json(written.read_bytes()).figures
        log.info(f"{part} HR@10 {100 * reached['HR@10']:.2f}, NDCG@10 {100 * reached['NDCG@10']:.2f} -> {written}")
    if written != place.result:
        raise SettingsError(f"{place.model}: is not of {run.title}. Delete it and run again.")
    (place.state / CHECKPOINT).unlink(missing_ok=True)
    return True


def run_all(
    chosen: list[tuple[Run, Place]], *, max_minutes: float | None = None, workers: int = 1, ray: str | None = None
) -> bool:
    """Do what is missing; True if all of it was done.

    Where a run fails the others go on; an error at the end names it.

    Parameters
    ----------
    chosen : list of (Run, Place)
        What to do, in this order.
    max_minutes : float, optional
        Stop then. What was begun goes on next time.
    workers : int
        Runs at a time, each in a process of its own with a share of the cores.
    ray : str, optional
        Address of a Ray cluster that does the runs instead.
    """
    missing = [(run, place) for run, place in chosen if place.progress() != "done"]
    deadline = None if max_minutes is None else time.time() + 60 * max_minutes
    if not missing:
        return True
    threads = max(1, (os.cpu_count() or 1) // workers)
    if ray is not None:
        from marsrec.lab.cluster import on_ray

        ended = on_ray(ray, missing, deadline, threads)
    elif workers > 1:
        ended = _in_processes(missing, deadline, workers, threads)
    else:
        ended = _in_turn(missing, deadline)
    done: list[bool] = []
    failed: list[str] = []
    for run, outcome in ended:
        done.append(outcome is True)
        if isinstance(outcome, Exception):
            failed.append(f"{run.title}: {outcome}")
        if isinstance(outcome, Exception) or ray is not None or workers > 1:
            log.info(f"[{len(done)}/{len(missing)}] {run.title}: {_in_words(outcome)}")
    if failed:
        listed = "\n".join(failed)
        raise MarsrecError(f"{len(failed)} of {len(missing)} runs failed. The same command tries them again.\n{listed}")
    return len(done) == len(missing) and all(done)


def _in_turn(missing: list[tuple[Run, Place]], deadline: float | None) -> Iterator[tuple[Run, Outcome]]:
    for index, (run, place) in enumerate(missing, start=1):
        log.info(f"\n[{index}/{len(missing)}] {run.title}")
        outcome: Outcome
        try:
            outcome = in_time(run, place, deadline, progress=True)
        except Exception as error:  # not Ctrl-C, which stops all
            outcome = error
        yield run, outcome
        if outcome is False:
            return


def _in_processes(
    missing: list[tuple[Run, Place]], deadline: float | None, workers: int, threads: int
) -> Iterator[tuple[Run, Outcome]]:
    """Each worker is a pool of its own, for a killed process breaks the whole pool that it is in."""
    pool_of_one = partial(ProcessPoolExecutor, 1, get_context("spawn"), _worker, (threads,))
    left = list(reversed(missing))
    waiting: dict[Future[bool], tuple[Run, ProcessPoolExecutor]] = {}
    with ExitStack() as pools:
        idle = [pools.enter_context(pool_of_one()) for _ in range(min(workers, len(missing)))]
        try:
            while left or waiting:
                while left and idle:
                    (run, place), pool = left.pop(), idle.pop()
                    waiting[pool.submit(in_new_process, run, place, deadline, foreign_modules(run))] = (run, pool)
                for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                    run, pool = waiting.pop(future)
                    error = future.exception()
                    if isinstance(error, BrokenProcessPool):
                        error = MarsrecError("its process was killed, perhaps for want of memory: try fewer --workers.")
                        pool = pools.enter_context(pool_of_one())
                    elif error is not None and not isinstance(error, Exception):
                        raise error
                    idle.append(pool)
                    yield run, error or future.result()
        except BaseException:  # Ctrl-C: what was begun goes on next time
            for worker in active_children():
                worker.kill()  # Lightning turns SIGTERM into an exception, which the pool would take for an outcome
            raise


def _in_words(outcome: Outcome) -> str:
    """What became of a run; with the traceback if it is nothing that the caller can put right."""
    if isinstance(outcome, Exception) and not isinstance(outcome, MarsrecError | OSError):
        return "".join(traceback.format_exception(outcome))
    return "done" if outcome is True else "out of time" if outcome is False else str(outcome)


def in_time(run: Run, place: Place, deadline: float | None, progress: bool = False) -> bool:
    """Do a run if there is time left for it; whether it was finished."""
    left = _left(deadline)
    return (left is None or left > 0) and perform(run, place, left, progress)


def foreign_modules(run: Run) -> list[str]:
    """The modules that brought parts of a run's model. A new process knows them only once it has imported them."""
    return sorted({origin["module"] for origin in recommender_of(run).settings_without_data().origins.values()})


def in_new_process(run: Run, place: Place, deadline: float | None, modules: Sequence[str]) -> bool:
    """Do a run in a process that has not imported the modules of its parts; see `in_time`."""
    for module in modules:
        try:
            import_module(module)
        except ImportError as error:
            raise SettingsError(
                f"the process of the run cannot import {module}, which brings a part of its model ({error}). Install "
                "it there, or add its folder to PYTHONPATH."
            ) from error
    return in_time(run, place, deadline)


def _left(deadline: float | None) -> float | None:
    """Minutes until then."""
    return None if deadline is None else (deadline - time.time()) / 60


def _worker(threads: int) -> None:
    """Take a share of the cores, and do not outlive the runner: it may be killed and called again."""
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the runner gets it too, and ends
    runner = parent_process()
    assert runner is not None

    def watch() -> None:
        runner.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
