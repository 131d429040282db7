"""The command that serves saved models over HTTP."""

from pathlib import Path
from typing import Annotated

import typer
from pydantic import SecretStr

from marsrec.errors import SettingsError


def serve(
    saved: Annotated[list[Path], typer.Argument(help="Folders that `marsrec fit` wrote; the first is the default.")],
    host: Annotated[str, typer.Option(help="Address to listen on. Others than this machine's need a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8000,
    token: Annotated[
        str | None, typer.Option(envvar="MARSREC_TOKEN", help="What requests must bring as a bearer token.")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            envvar="MARSREC_STORE",
            help="Event store: an SQLite file or a postgresql:// URL. Default: beside the model.",
        ),
    ] = None,
    at: Annotated[
        str | None, typer.Option(help="now: requests that name no moment are made now, not at the end of the log.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Threads of torch; all cores by default.")] = None,
    cache_mb: Annotated[int, typer.Option(help="Memory for live sessions, per model.")] = 256,
    queue: Annotated[int, typer.Option(help="Histories that may wait; further requests are answered 503.")] = 512,
    requests: Annotated[int, typer.Option(help="Requests that may be under way; further ones are answered 503.")] = (
        1024
    ),
    batch: Annotated[int, typer.Option(help="Histories that are computed at once.")] = 64,
    batch_wait_ms: Annotated[float, typer.Option(help="How long a request waits for others to compute with.")] = 0.0,
    body_bytes: Annotated[int, typer.Option(help="Largest body of a request.")] = 4 * 2**20,
    user_events: Annotated[int, typer.Option(help="Events that the store keeps of one user.")] = 100_000,
    ann_from: Annotated[
        int | None,
        typer.Option(
            help="Rank catalogs of at least this many items through an approximate index, the others exactly."
        ),
    ] = None,
) -> None:
    """Answer requests over HTTP, remember events, and show on a page why what is recommended."""
    try:
        from marsrec.serve.app import serve as run
        from marsrec.serve.settings import ServeSettings
    except ModuleNotFoundError as error:
        raise SettingsError(f"serving needs {error.name}: pip install 'marsrec[serve]'.") from None

    run(
        ServeSettings(
            models=tuple(saved),
            host=host,
            port=port,
            token=None if token is None else SecretStr(token),
            store=store,
            at=at,
            threads=threads,
            cache_mb=cache_mb,
            queue=queue,
            requests=requests,
            batch=batch,
            batch_wait_ms=batch_wait_ms,
            body_bytes=body_bytes,
            user_events=user_events,
            ann_from=ann_from,
        )
    )
