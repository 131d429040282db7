"""One server and one browser for all tests of the pages.

Skipped where there is no Chromium; `MARSREC_CHROMIUM` names one that stands elsewhere.
"""

import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import uvicorn

from marsrec import Recommender
from marsrec.data.titles import with_titles
from marsrec.serve.app import create_app
from marsrec.serve.settings import ServeSettings

CHROMIUM = os.environ.get("MARSREC_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync"]
MARKUP = "<img src=x onerror=alert(1)>"
"""A title that must stay text."""
CATEGORIES = ("Coffee", "Office", "<b>Garden</b>")


@pytest.fixture(scope="package")
def shop(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model mars-t with titles and categories, but for two items."""
    titles = pl.DataFrame(
        {
            "item": [f"i{i}" for i in range(18)],
            "title": [MARKUP, *(f"Article {i}" for i in range(1, 18))],
            "category": [CATEGORIES[i % 3] for i in range(18)],
        }
    )
    named = Recommender.load(folders["mars-t"])
    assert named.histories is not None
    named.histories, _ = with_titles(named.histories, titles)
    named.item_ids = named.histories.item_ids
    folder = tmp_path_factory.mktemp("named") / "shop"
    named.save(folder)
    return folder


@pytest.fixture(scope="package")
def address(folders: dict[str, Path], shop: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    store = str(tmp_path_factory.mktemp("store") / "events.db")
    app = create_app(ServeSettings(models=(folders["mars-t"], folders["gru4rec"], shop), store=store, future=2**32))
    config = uvicorn.Config(app, port=0, log_level="warning")
    socket = config.bind_socket()
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]}, daemon=True)
    thread.start()
    deadline = time.monotonic() + 60
    while not server.started:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    yield f"http://127.0.0.1:{socket.getsockname()[1]}"
    server.should_exit = True
    thread.join(30)


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no Chromium found: apt install chromium, or set MARSREC_CHROMIUM")
    with api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield running
        running.close()


@pytest.fixture
def opened(browser: Any, address: str) -> Iterator[Any]:
    """A page without an address; errors in its scripts and requests to other hosts fail the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.set_default_timeout(20_000)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if _is_error(message) else None)
    page.on("request", lambda sent: None if sent.url.startswith(address) else wrong.append(sent.url))
    page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
    yield page
    context.close()
    assert wrong == []


@pytest.fixture
def page(opened: Any, address: str) -> Any:
    """The page with the recommendations of its first user."""
    opened.goto(address)
    opened.wait_for_selector(".recs li")
    return opened


def _is_error(message: Any) -> bool:
    """Refusals of the server, which the page handles, are logged by the browser all the same."""
    expected = ("responded with a status of 4", "responded with a status of 503", "net::ERR_FAILED")
    return message.type == "error" and not any(words in message.text for words in expected)


def shows(page: Any, place: str, words: str) -> None:
    from playwright.sync_api import expect

    expect(page.locator(place)).to_contain_text(words, timeout=20_000)


def recommended(page: Any, model: str = "mars-t") -> list[str]:
    rows = page.locator(f"article[data-model={model}] .recs > li")
    return list(rows.evaluate_all("rows => rows.map((row) => row.dataset.item)"))  # at one moment


def settled(page: Any, before: list[str], model: str = "mars-t") -> list[str]:
    """The list once it differs from what it was."""
    deadline = time.monotonic() + 20
    while (now := recommended(page, model)) == before:
        assert time.monotonic() < deadline, "the list stays as it was"
        page.wait_for_timeout(50)
    return now


def find(page: Any, user: str) -> None:
    page.fill("#user-search", user)
    page.click(f"#users button[data-user='{user}']")
    shows(page, "#status", f"user {user}.")
