"""Several workers on one port: started, watched, replaced when they die, and asked together.

The supervisor listens and hands the socket to its workers, which take connections from it in turn. It loads no model
itself. With each worker it exchanges lines of JSON: what a worker asks of all (load anew, measure), and their answers.
"""

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any

from marsrec.errors import MarsrecError, SettingsError
from marsrec.nn.parts import foreign_modules
from marsrec.serve.connections import address, listen
from marsrec.serve.settings import ServeSettings

log = logging.getLogger(__name__)

LINE = 64 * 2**20
"""Bytes of the longest message."""
ANSWER_SECONDS = 5.0
"""How long a worker may take for a measurement. Loading a model may take as long as it takes."""
STABLE_SECONDS = 10.0
"""A worker that dies earlier is replaced only after a while."""
ORPHANS_SECONDS = 30.0
"""How long workers may hold the port whose supervisor is gone."""
CLOSING_SECONDS = 20.0
"""How long a worker may take to finish what it has begun."""

Message = dict[str, Any]


def supervise(settings: ServeSettings) -> None:
    """Serve with several workers until a signal ends the process; what was begun is finished first."""
    if not hasattr(signal, "SIGHUP"):
        raise SettingsError("several workers need Linux or macOS. Leave --workers out.")
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is something to load anew
    # Workers of a supervisor that was killed hold the port until they notice, some seconds after they began.
    listener = listen(settings, patience=ORPHANS_SECONDS)  # before the models are loaded, which takes a while
    supervisor = Supervisor(settings, listener)
    asyncio.run(supervisor.run())
    if supervisor.ended_by not in (None, signal.SIGINT):
        signal.signal(supervisor.ended_by, signal.SIG_DFL)
        signal.raise_signal(supervisor.ended_by)  # passed on now that all is closed


class _Worker:
    """A worker process, and the line to it."""

    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.process, self.reader, self.writer = process, reader, writer
        self.ready = False
        self.began = time.monotonic()
        self._asked: dict[int, asyncio.Future[Message]] = {}

    def tell(self, **message: Any) -> None:
        """Send a message."""
        if not self.writer.is_closing():
            self.writer.write(json.dumps(message).encode() + b"\n")

    def order(self, what: str, **arguments: Any) -> asyncio.Future[Message]:
        """Have something done. The answer is an empty one if the worker dies."""
        number = max(self._asked, default=0) + 1
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        self.tell(order=what, number=number, **arguments)
        return answer

    def answered(self, message: Message) -> None:
        """Take an answer to an order."""
        answer = self._asked.pop(message["number"])
        if not answer.done():
            answer.set_result(message)

    def dead(self) -> None:
        """Let nobody wait for it any more."""
        self.ready = False
        self.writer.close()
        for answer in self._asked.values():
            if not answer.done():
                answer.set_result({})
        self._asked.clear()


class Supervisor:
    """Keeps as many workers running as the settings say.

    Parameters
    ----------
    settings : ServeSettings
        What each worker serves.
    listener : socket
        Where it listens.
    """

    def __init__(self, settings: ServeSettings, listener: socket.socket) -> None:
        self.settings, self.listener = settings, listener
        self.ended_by: signal.Signals | None = None
        self.workers: dict[int, _Worker] = {}
        self._failure: str | None = None
        self._end = asyncio.Event()
        self._told = self._loading = False
        self._loaded = 0
        """How many times models were loaded anew."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Keep workers running until a signal comes; raises what the first workers could not start for."""
        loop = asyncio.get_running_loop()
        for name in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(name, self._finish, name)
        loop.add_signal_handler(signal.SIGHUP, lambda: self._begin(self._reload(None)))
        keepers = [asyncio.create_task(self._keep(place)) for place in range(self.settings.workers)]
        await self._end.wait()
        self.listener.close()
        for worker in self.workers.values():
            with contextlib.suppress(ProcessLookupError):
                worker.process.terminate()
        _, late = await asyncio.wait(keepers, timeout=CLOSING_SECONDS)
        for worker in self.workers.values():
            with contextlib.suppress(ProcessLookupError):
                worker.process.kill()
        if late:
            await asyncio.wait(late)
        if self._failure is not None:
            raise MarsrecError(self._failure)

    def _finish(self, name: signal.Signals) -> None:
        self.ended_by = name
        self._end.set()

    def _begin(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)  # the loop itself does not keep it
        task.add_done_callback(self._tasks.discard)

    # ------------------------------------------------------------- processes

    async def _keep(self, place: int) -> None:
        """Start a worker, and another one whenever it has died."""
        while not self._end.is_set():
            worker = self.workers[place] = await self._started()
            loaded = self._loaded
            with contextlib.suppress(ConnectionError, ValueError):  # what it cannot say any more
                while line := await worker.reader.readline():
                    self._heard(worker, json.loads(line), loaded)
            code, was_ready = await worker.process.wait(), worker.ready
            worker.dead()
            if self._end.is_set():
                return
            if not was_ready and not any(other.ready for other in self.workers.values()):
                self._failure = self._failure or f"a worker ended while it started ({_ending(code)})."
                self._end.set()
                return
            log.warning(f"Worker {worker.process.pid} has ended ({_ending(code)}). Another one takes its place.")
            if time.monotonic() - worker.began < STABLE_SECONDS:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._end.wait(), 1.0)

    async def _started(self) -> _Worker:
        ours, theirs = socket.socketpair()
        handed = self.listener.fileno(), theirs.fileno()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "marsrec.serve.member", *map(str, handed)),
            pass_fds=handed,
            start_new_session=True,  # what a terminal sends comes to the supervisor alone
        )
        theirs.close()
        worker = _Worker(process, *await asyncio.open_connection(sock=ours, limit=LINE))
        token = self.settings.token
        worker.tell(
            settings=self.settings.model_dump(mode="json", exclude={"token"}),
            token=None if token is None else token.get_secret_value(),
            path=sys.path,
            modules=foreign_modules(),
            level=logging.getLogger("marsrec").getEffectiveLevel(),
            supervisor=os.getpid(),
        )
        return worker

    def _heard(self, worker: _Worker, message: Message, loaded: int) -> None:
        """Do as a worker says."""
        match message:
            case {"log": text, "level": level}:
                log.log(level, text)
            case {"failed": text}:
                self._failure = text
            case {"ready": facts}:
                worker.ready = True
                if loaded < self._loaded:  # it may have read what has been replaced meanwhile
                    self._begin(self._load_late(worker))
                self._ready(facts)
            case {"ask": "reload", "number": number, "model": model}:
                self._begin(self._answer(worker, number, self._reload(model)))
            case {"ask": "measure", "number": number}:
                self._begin(self._answer(worker, number, self._measure()))
            case {"order": _}:
                worker.answered(message)

    def _ready(self, facts: str) -> None:
        if self._told or sum(worker.ready for worker in self.workers.values()) < self.settings.workers:
            return
        self._told = True
        log.info(facts)
        where = f"http://{address(self.listener, self.settings)}"
        log.info(f"Serving {where} with {len(self.workers)} workers — Ctrl-C ends them.")

    @staticmethod
    async def _answer(worker: _Worker, number: int, work: Any) -> None:
        worker.tell(answer=number, **await work)

    # ---------------------------------------------------- what concerns all

    async def _everybody(self, what: str, seconds: float | None = None, **arguments: Any) -> list[Message]:
        """Answers of all workers that are there to the end."""
        orders = [worker.order(what, **arguments) for worker in self.workers.values() if worker.ready]
        done, _ = await asyncio.wait(orders, timeout=seconds) if orders else (set(), set())
        return [answer for order in done if (answer := order.result())]

    async def _measure(self) -> Message:
        return {"result": [answer["result"] for answer in await self._everybody("measure", ANSWER_SECONDS)]}

    async def _reload(self, model: str | None) -> Message:
        """Load models anew in all workers, or in none."""
        if self._loading:
            return {"busy": True}
        self._loading = True
        try:
            refusals = [
                answer["refusal"] for answer in await self._everybody("prepare", model=model) if answer.get("refusal")
            ]
            answers = await self._everybody("discard" if refusals else "exchange")
            if refusals:
                log.info(f"The models stay as they are: {refusals[0]['message']}")
                return {"refusal": refusals[0]}
            self._loaded += 1
            names: Sequence[str] = answers[0]["result"] if answers else []
            log.info(f"Loaded anew: {', '.join(names)}.")
            return {"result": names}
        finally:
            self._loading = False

    async def _load_late(self, worker: _Worker) -> None:
        refused = (await worker.order("prepare", model=None)).get("refusal")
        await worker.order("discard" if refused else "exchange")


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"code {code}"
