"""A worker of several: the line to its supervisor, through which it speaks to the others."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sys
import threading
from importlib import import_module
from itertools import count
from typing import Any

from starlette.concurrency import run_in_threadpool

from marsrec.errors import MarsrecError
from marsrec.serve.app import run
from marsrec.serve.models import BusyError
from marsrec.serve.refusals import RefusalError, refusal_of
from marsrec.serve.service import Service
from marsrec.serve.settings import ServeSettings


class Line:
    """The line to the supervisor: messages are JSON, one in a line."""

    def __init__(self, end: socket.socket) -> None:
        self._end, self._file = end, end.makefile("rb")
        self._sending = threading.Lock()
        self._numbers = count(1)
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}

    def tell(self, **message: Any) -> None:
        """Send a message; nobody hears it if the supervisor has died."""
        with self._sending, contextlib.suppress(OSError):
            self._end.sendall(json.dumps(message).encode() + b"\n")

    def hear(self) -> dict[str, Any]:
        """The next message; nothing once the supervisor has died."""
        line = self._file.readline()
        return json.loads(line) if line else {}

    def attend(self, service: Service) -> None:
        """Say that the service is ready, and from now on do as the supervisor says."""
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._listen, args=(service, loop), daemon=True).start()
        self.tell(ready=service.facts())

    async def ask(self, what: str, **arguments: Any) -> Any:
        """Have something done by all workers. Raises the refusal of the one that refuses."""
        number = next(self._numbers)
        self._asked[number] = asyncio.get_running_loop().create_future()
        self.tell(ask=what, number=number, **arguments)
        answer = await self._asked[number]
        if answer.get("busy"):
            raise BusyError("models are being loaded already. Try again when that is done.")
        if refusal := answer.get("refusal"):
            raise RefusalError(**refusal)
        return answer["result"]

    def _listen(self, service: Service, loop: asyncio.AbstractEventLoop) -> None:
        while message := self.hear():
            if "answer" in message:
                loop.call_soon_threadsafe(self._asked.pop(message["answer"]).set_result, message)
            else:
                asyncio.run_coroutine_threadsafe(self._obey(service, message), loop)
        os.kill(os.getpid(), signal.SIGTERM)  # the supervisor has died: finish what was begun, and end

    async def _obey(self, service: Service, message: dict[str, Any]) -> None:
        answer: dict[str, Any] = {"order": message["order"], "number": message["number"]}
        try:
            match message["order"]:
                case "prepare":
                    await run_in_threadpool(service.models.prepare, message["model"])
                case "exchange":
                    answer["result"] = [model.name for model in service.models.exchange()]
                case "discard":
                    service.models.discard()
                case "measure":
                    answer["result"] = service.measured()
        except Exception as error:
            refusal = refusal_of(error)
            words = "status", "code", "message", "remedy"
            answer["refusal"] = {word: getattr(refusal, word) for word in words}
        self.tell(**answer)


class _Told(logging.Handler):
    """Lets the supervisor log what this process would."""

    def __init__(self, line: Line) -> None:
        super().__init__()
        self.line = line

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record."""
        self.line.tell(log=self.format(record), level=record.levelno)


def main(listener: int, end: int) -> None:
    """Serve on a socket that listens, with a supervisor at the other end of a line."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # which concerns all, and so the supervisor
    line = Line(socket.socket(fileno=end))
    told = line.hear()
    logger = logging.getLogger("marsrec")
    logger.addHandler(_Told(line))
    logger.setLevel(told["level"])
    sys.path[:] = told["path"]
    for module in told["modules"]:
        import_module(module)
    try:
        run(ServeSettings(**told["settings"], token=told["token"]), socket.socket(fileno=listener), line)
    except MarsrecError as error:
        line.tell(failed=str(error))
        sys.exit(1)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
