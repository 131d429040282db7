"""The command that serves saved models over HTTP."""

from typing import TYPE_CHECKING, Annotated

from marsrec.cli.options import Fields
from marsrec.errors import needs

if TYPE_CHECKING:
    from marsrec.serve.settings import ServeSettings

ENVIRONMENT = {"token": "MARSREC_TOKEN", "store": "MARSREC_STORE"}


def serve(
    settings: Annotated["ServeSettings", Fields("marsrec.serve.settings", environment=ENVIRONMENT, argument="models")],
) -> None:
    """Serve models over HTTP: recommendations, an event store, and a page that explains them."""
    with needs("serve", "serving"):
        if settings.workers > 1:
            from marsrec.serve.supervisor import supervise as run  # loads nothing of what the workers load
        else:
            from marsrec.serve.app import serve as run

    run(settings)
