"""The application: everything put together, and the process around it."""

import asyncio
import contextlib
import logging
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import torch
import uvicorn
from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse
from starlette.staticfiles import StaticFiles

from marsrec import __version__
from marsrec.errors import MarsrecError
from marsrec.serve.connections import HttpProtocol, Scarcity, address, descriptors, listen
from marsrec.serve.direct import DirectRoutes
from marsrec.serve.endpoints import ROUTERS
from marsrec.serve.guard import Guard
from marsrec.serve.models import settle
from marsrec.serve.refusals import install, places_of
from marsrec.serve.service import Others, Service
from marsrec.serve.settings import ServeSettings

log = logging.getLogger(__name__)

PAGE = Path(__file__).parent / "page"
"""Files of the pages: `index.html` is served at `/`, `docs.html` at `/docs`, all of them under `/static/`."""

SWITCH_SECONDS = 0.0005
"""After how long a thread lets another have its turn. Python's own 5 ms are many times as long as an answer takes."""


def create_app(settings: ServeSettings, others: Others | None = None) -> FastAPI:
    """Load the models, open the store, and make the application.

    Raises an error of `marsrec.errors` if a model or the store cannot be opened.

    Parameters
    ----------
    settings : ServeSettings
        What to serve.
    others : Others, optional
        The other workers, if this is one of several.
    """
    service = Service(settings, others)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        asyncio.get_running_loop().set_exception_handler(Scarcity())
        service.start()
        if others is not None:
            others.attend(service)
        with _reload_on_hangup(service) if others is None else contextlib.nullcontext():
            yield
        await run_in_threadpool(service.close)

    app = FastAPI(
        title="marsrec",
        version=__version__,
        summary="Next-item recommendation from timestamped histories.",
        lifespan=lifespan,
        docs_url=None,  # its pages load scripts from elsewhere: ours is `page/docs.html`
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.service = service
    for router in ROUTERS:
        app.include_router(router)
    install(app)
    app.add_middleware(DirectRoutes, service=service)
    app.add_middleware(Guard, settings=settings, metrics=service.metrics, full=service.full)
    if (PAGE / "index.html").is_file():
        app.mount("/static", StaticFiles(directory=PAGE), name="static")

        @app.get("/", include_in_schema=False)
        async def page() -> FileResponse:
            return FileResponse(PAGE / "index.html")

        @app.get("/docs", include_in_schema=False)
        async def docs() -> FileResponse:
            return FileResponse(PAGE / "docs.html")

    return app


@contextlib.contextmanager
def _reload_on_hangup(service: Service) -> Iterator[None]:
    """Load the models anew on SIGHUP, where signals reach this thread."""
    loop, tasks = asyncio.get_running_loop(), set()

    async def reload() -> None:
        try:
            await service.reload(None)
        except Exception as error:
            if not isinstance(error, MarsrecError):
                log.error("a reload failed\n%s", places_of(error))

    def hung_up() -> None:
        task = loop.create_task(reload())
        tasks.add(task)  # the loop itself does not keep it
        task.add_done_callback(tasks.discard)

    if (hangup := _hangup()) is None:
        yield
        return
    # Not the loop's own way, which in the end leaves a signal that kills.
    before = signal.signal(hangup, lambda *_: loop.call_soon_threadsafe(hung_up))
    try:
        yield
    finally:
        signal.signal(hangup, before)


def _hangup() -> int | None:
    """SIGHUP, where the system has it and it reaches this thread."""
    here = threading.current_thread() is threading.main_thread()
    return getattr(signal, "SIGHUP", None) if here else None


def serve(settings: ServeSettings) -> None:
    """Serve until a signal ends the process; what was begun is finished first."""
    if (hangup := _hangup()) is not None:
        signal.signal(hangup, signal.SIG_IGN)  # until there is something to load anew
    run(settings, listen(settings))  # listens before the models are loaded, which takes a while


def run(settings: ServeSettings, listener: socket.socket, others: Others | None = None) -> None:
    """Serve on a socket that listens, alone or as one of several workers."""
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    sys.setswitchinterval(SWITCH_SECONDS)
    HttpProtocol.most = descriptors()
    config = uvicorn.Config(
        create_app(settings, others),
        log_level="error",  # what strangers send wrongly is not told line by line
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=10,
        http=HttpProtocol,
        ws="none",
    )
    settle()
    if others is None:
        service: Service = config.app.state.service  # type: ignore[union-attr]
        log.info(service.facts())
        log.info(f"Serving http://{address(listener, settings)} — Ctrl-C ends it.")
    with contextlib.suppress(KeyboardInterrupt):  # which uvicorn passes on when all is closed
        uvicorn.Server(config).run(sockets=[listener])
