"""Sharing a saved recommender by name, on the Hugging Face hub or whatever `HF_ENDPOINT` names."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeVar

from marsrec import __version__
from marsrec.errors import DataError, needs
from marsrec.recommender import persistence
from marsrec.recommender.card import LIBRARY, card

if TYPE_CHECKING:
    from marsrec.recommender import Recommender

R = TypeVar("R", bound="Recommender")

FILES = [*persistence.FILES, f"{persistence.HISTORIES}/*"]
"""What belongs to a saved recommender. Nothing else is downloaded, and nothing else is replaced by an upload."""


def push(
    recommender: Recommender,
    repo: str,
    *,
    histories: bool,
    private: bool | None,
    revision: str | None,
    message: str | None,
    token: str | None,
) -> str:
    """Upload a recommender in one commit; see `Recommender.push_to_hub`."""
    with needs("hub", "sharing models"):
        from huggingface_hub import HfApi
    with TemporaryDirectory() as parent, _told(repo, revision):
        folder = Path(parent) / "model"
        recommender.save(folder, histories=histories)
        (folder / persistence.CARD).write_text(card(recommender, repo=repo, histories=histories), encoding="utf-8")
        api = HfApi(token=token, library_name=LIBRARY, library_version=__version__)
        name = api.create_repo(repo, private=private, exist_ok=True).repo_id
        if revision is not None:
            api.create_branch(name, branch=revision, exist_ok=True)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "It seems that you are about to commit a data file")  # the items
            commit = api.upload_folder(
                repo_id=name,
                folder_path=folder,
                revision=revision,
                commit_message=message
                or f"{recommender.metrics.get('model', recommender.name)}, {LIBRARY} {__version__}",
                delete_patterns=FILES,  # histories that were there before do not stay
            )
    return str(commit.commit_url)


def pull(kind: type[R], repo: str, *, revision: str | None, token: str | None, device: str) -> R:
    """Download a recommender, or find it in the hub's cache, and load it; see `Recommender.from_hub`."""
    with needs("hub", "sharing models"):
        from huggingface_hub import snapshot_download
    with _told(repo, revision):
        folder = snapshot_download(
            repo,
            revision=revision,
            token=token,
            allow_patterns=FILES,
            library_name=LIBRARY,
            library_version=__version__,
        )
    if not (Path(folder) / persistence.CONFIG).is_file():
        raise DataError(f"{repo}: holds no saved recommender (no {persistence.CONFIG}). push_to_hub writes one.")
    place = Path(folder)  # links into the cache of this repository, two folders above
    return persistence.load(kind, place, device, within=place.parents[1])


@contextmanager
def _told(repo: str, revision: str | None) -> Iterator[None]:
    """Turn the hub's errors into one sentence with a remedy."""
    from huggingface_hub import errors

    at = f"{repo}@{revision}" if revision else repo
    try:
        yield
    except errors.HFValidationError as error:
        raise DataError(f"{repo!r}: no name of a model on the hub, which is like 'name/model'. {error}") from None
    except errors.GatedRepoError:
        raise DataError(f"{at}: its owner has to let you in. Ask on its page, then log in: `hf auth login`.") from None
    except errors.RepositoryNotFoundError:
        raise DataError(
            f"{at}: there is no such model, or it is private. Check the name, or log in: `hf auth login`."
        ) from None
    except errors.RevisionNotFoundError:
        raise DataError(f"{at}: there is no such branch, tag or commit.") from None
    except errors.LocalEntryNotFoundError:
        raise DataError(f"{at}: the hub does not answer, and the model is not in its cache on this machine.") from None
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        remedy = "Log in (`hf auth login`), or give a token." if status in (401, 403) else "Try again later."
        raise DataError(f"{at}: the hub refused with {status} ({str(error).splitlines()[0]}). {remedy}") from None
    except errors.HTTPError as error:  # type: ignore[attr-defined]  # httpx's, of which there are several
        raise DataError(f"{at}: the hub does not answer ({error}).") from None
