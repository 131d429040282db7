"""Where there is nothing to show, the page says what to do; where something went wrong, too."""

import subprocess
from typing import Any

import httpx
import pytest
from tests.serve.page.conftest import recommended, shows


def test_a_user_without_events_gets_a_command_that_works(opened: Any, address: str) -> None:
    user = "o'neill & co"
    opened.goto(f"{address}/?user=o'neill %26 co")
    shows(opened, ".empty", f"{user} has no events yet")
    command = opened.locator(".empty pre").text_content()
    sent = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=30, check=False)
    assert '"new":1' in sent.stdout, (command, sent)
    opened.click("text=Look again")
    shows(opened, "#status", f"user {user}.")
    assert opened.locator(".empty").count() == 0
    assert httpx.get(f"{address}/v1/users/{user}").json()["events"] == 1


def test_a_command_is_copied_or_selected(opened: Any, address: str) -> None:
    opened.goto(f"{address}/?user=nobody")
    opened.click("text=Copy the command")
    said = "() => /Copied|Selected/.test(document.querySelector('.command span').textContent)"
    opened.wait_for_function(said)


def test_without_any_user_the_page_says_how_to_begin(opened: Any, address: str) -> None:
    opened.route("**/v1/users?*", lambda route: route.fulfill(json={"users": []}))
    opened.goto(address)
    shows(opened, ".empty", "No user yet")
    shows(opened, "#users", "Type an id to begin with a new one")
    assert "/v1/users/ann/events" in opened.locator(".empty pre").text_content()
    opened.click("#items button >> nth=0")
    shows(opened, "#status", "Choose a user first")
    assert opened.evaluate("document.activeElement.id") == "user-search"


def test_an_empty_history_of_ones_own_says_what_to_do(page: Any) -> None:
    page.click("#tab-own")
    shows(page, ".empty", "Your history is empty")
    assert page.locator(".recs li").count() == 10
    command = page.locator(".empty pre").text_content()
    sent = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=30, check=False)
    assert '"source":"model"' in sent.stdout, (command, sent)
    page.click("#items button >> nth=0")
    page.wait_for_function("() => document.querySelectorAll('.empty').length === 0")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "The server does not answer. See whether marsrec serve still runs, then try again."),
        ((503, "The server has as much to do as it takes."), "The server has as much to do as it takes. Try it later."),
    ],
    ids=["away", "full"],
)
def test_a_server_that_does_not_answer_can_be_asked_again(page: Any, answer: Any, words: str) -> None:
    def refuse(route: Any) -> None:
        if answer is None:
            route.abort()
        else:
            body = {"error": {"code": "overload", "message": answer[1], "remedy": "Try it later."}}
            route.fulfill(status=answer[0], json=body)

    before = recommended(page)
    page.route("**/v1/users/**", refuse)
    page.select_option("#from", "default")
    shows(page, "#status", words)
    assert "stale" in page.get_attribute("#results", "class")
    page.unroute("**/v1/users/**")
    page.click("#status button")
    shows(page, "#status", "10 recommendations")
    assert "stale" not in page.get_attribute("#results", "class")
    assert len(recommended(page)) == len(before)


def test_a_server_that_is_away_from_the_start_can_be_asked_again(opened: Any, address: str) -> None:
    opened.route("**/v1/**", lambda route: route.abort())
    opened.goto(address)
    shows(opened, "#status", "The server does not answer.")
    assert not opened.is_visible("#who")  # nothing to choose from
    opened.unroute("**/v1/**")
    opened.click("#status button")
    opened.wait_for_selector(".recs li")


def test_the_slider_is_there_only_where_the_moment_counts(page: Any) -> None:
    assert page.is_visible("#at")
    page.select_option("#model", "gru4rec")
    page.wait_for_selector("article[data-model=gru4rec] .recs li")
    assert not page.is_visible("#at")
    shows(page, "#clock", "the moment of a request changes nothing")
    page.select_option("#other", "mars-t")
    page.wait_for_selector("article[data-model=mars-t] .recs li")
    assert page.is_visible("#at")
