"""The page in a real browser: what it shows is what the API answers."""

import time
import urllib.parse
from dataclasses import replace
from typing import Any

import httpx
import pytest
from tests.serve.page.conftest import MARKUP, find, recommended, settled, shows

from marsrec.nn.readouts.base import Contributions
from marsrec.nn.readouts.mars import Mars


def test_find_a_user_and_see_what_the_api_says(page: Any, address: str) -> None:
    find(page, "u7")
    assert page.locator("svg.timeline .dot").count() == 6 * 4  # events that the model looks at, in each head
    assert page.locator("svg.decay .curve").count() == 4
    assert "half-life" in page.locator("svg.timeline").text_content()
    latest = httpx.get(f"{address}/v1/users/u7").json()["history"][-1]["time"]
    answer = httpx.get(f"{address}/v1/users/u7/recommendations", params={"at": latest, "explain": True}).json()
    assert page.locator("article .sentence").text_content() == answer["items"][0]["explanation"]["sentence"]
    assert recommended(page) == [str(entry["item"]) for entry in answer["items"]]
    shown = [float(row.text_content()) for row in page.locator(".recs .score").all()]
    assert shown == pytest.approx([entry["score"] for entry in answer["items"]], abs=6e-4)


def test_contributions_sum_to_the_score(page: Any) -> None:
    find(page, "u3")
    row = page.locator(".recs > li").first
    row.locator(".rec").click()
    cells = [[cell.text_content() for cell in line.locator("td").all()] for line in row.locator("tbody tr").all()]
    score = float(row.locator("tfoot td").nth(1).text_content())
    assert sum(float(line[1]) for line in cells) == pytest.approx(score, abs=1e-3)
    for line in cells[:-1]:
        assert sum(map(float, line[2:])) == pytest.approx(float(line[1]), abs=1e-3)
    assert score == pytest.approx(float(row.get_attribute("data-score")), abs=1e-4)
    assert cells[-1][0] == "last state"


def test_heads_that_are_no_time_scales(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a readout of somebody else may have them: the split is shown all the same."""
    contributions = Mars.contributions

    def without_scales(*arguments: Any, **options: Any) -> Contributions | None:
        parts = contributions(*arguments, **options)
        return None if parts is None else replace(parts, scales=None)

    monkeypatch.setattr(Mars, "contributions", without_scales)
    monkeypatch.setattr(Mars, "time_scales", lambda readout: None)
    page.reload()
    page.wait_for_selector(".recs li")
    assert page.locator("svg.decay").count() == 0
    assert page.locator("svg.timeline .dot").count() == 6 * 4
    test_contributions_sum_to_the_score(page)


def test_the_slider_changes_the_order(page: Any) -> None:
    find(page, "u7")
    page.select_option("#from", "default")
    shows(page, "#at-words", "at the end of the log")
    page.select_option("#from", "latest")
    shows(page, "#at-words", "at the latest event")
    before = recommended(page)
    page.locator("#at").fill("100")
    assert settled(page, before) != before
    assert "90 days later" in page.locator("#at-words").text_content()
    assert page.locator(".moved").filter(has_text="▲").count() + page.locator(".moved").filter(has_text="new").count()
    shows(page, "#add-hint", "A click stores the event at 20")


def test_an_added_event_is_the_latest_and_changes_the_list(page: Any, address: str) -> None:
    find(page, "u11")
    page.select_option("#from", "default")
    shows(page, "#at-words", "at the end of the log")
    before = recommended(page)
    page.fill("#item-search", "i13")
    page.click("#items button[data-item='i13']")
    now = settled(page, before)
    page.locator("summary").first.click()
    assert page.locator("table.events tbody tr").first.locator("td").first.text_content() == "i13"
    history = httpx.get(f"{address}/v1/users/u11").json()["history"]
    assert (history[-1]["item"], history[-1]["stored"]) == ("i13", True)
    assert history[-1]["time"] == httpx.get(f"{address}/v1/model").json()["model"]["log_end"]  # of the request
    page.locator("#at").fill("3")
    page.click("#undo button")
    shows(page, "#status", "user u11.")
    assert settled(page, now) == before
    assert httpx.get(f"{address}/v1/users/u11").json()["events"] == len(history) - 1


def test_a_new_user_gets_the_event_and_nobody_else(page: Any, address: str) -> None:
    others = httpx.get(f"{address}/v1/users/u0").json()["events"]
    page.fill("#user-search", "zoe")
    page.click("#users button[data-user=zoe]")
    shows(page, "#status", "zoe has no events yet")
    page.click("#items li:first-child button")
    shows(page, "#status", "user zoe.")
    assert httpx.get(f"{address}/v1/users/zoe").json()["events"] == 1
    assert httpx.get(f"{address}/v1/users/u0").json()["events"] == others


def test_an_event_from_elsewhere_does_not_stop_the_page(page: Any, address: str) -> None:
    find(page, "u15")
    before = recommended(page)
    event = {"item": "i2", "time": 1_800_000_000}
    httpx.post(f"{address}/v1/users/u15/events", json={"events": [event]})
    page.locator("#at").fill("3")
    settled(page, before)
    assert "wrong" not in (page.get_attribute("#status", "class") or "")


def test_a_history_of_ones_own(page: Any) -> None:
    page.click("#tab-own")
    shows(page, "#status", "your history")
    assert "most frequent" in page.locator("article").text_content()
    before = recommended(page)
    page.fill("#item-search", "i5")
    page.click("#items button[data-item='i5']")
    now = settled(page, before)
    assert "i5" not in now
    assert page.locator("#own-events li").count() == 1
    page.click("#items button[data-item='i5']")
    page.locator("#own-events select").first.select_option(label="1 year ago")
    page.wait_for_function(  # the answer to the latest of the three changes
        """() => {
            const cells = [...document.querySelectorAll("table.events tbody tr td:nth-child(2)")]
            const years = cells.map((cell) => Number(cell.textContent.slice(0, 4)))
            return years.length === 2 && years[0] - years[1] === 1
        }""",
        timeout=20_000,
    )
    page.reload()  # a history that was made is not lost
    page.wait_for_selector(".recs li")
    page.click("#tab-own")
    assert page.locator("#own-events li").count() == 2
    page.click("#own-events button")
    page.click("#own-events button")
    shows(page, "article", "most frequent")
    assert recommended(page) == before


def test_two_models_side_by_side(page: Any) -> None:
    page.select_option("#other", "gru4rec")
    page.wait_for_selector("article[data-model=gru4rec] .recs li")
    assert page.locator("article").count() == 2
    assert page.locator("article[data-model=gru4rec] svg.decay").count() == 0


def test_by_keyboard_alone(page: Any) -> None:
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.focus("#user-search")
    page.keyboard.type("u2")
    page.keyboard.press("Enter")
    shows(page, "#status", "user u2.")
    page.focus("#at")
    page.keyboard.press("End")
    shows(page, "#at-words", "90 days")
    page.focus("#tab-user")
    page.keyboard.press("ArrowRight")
    assert page.get_attribute("#tab-own", "aria-selected") == "true"


def test_enter_takes_who_was_searched_for_however_slow_the_answer(page: Any) -> None:
    page.route("**/v1/users?*", lambda route: (time.sleep(0.4), route.continue_()))
    page.fill("#user-search", "u25")
    page.keyboard.press("Enter")
    shows(page, "#status", "user u25.")


def test_on_a_phone_nothing_is_wider_than_the_screen(browser: Any, address: str) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark")
    opened = context.new_page()
    opened.goto(address)
    opened.wait_for_selector(".recs li")
    assert opened.evaluate("document.documentElement.scrollWidth") <= 390
    opened.click("#tab-own")
    assert not opened.is_visible("#user-search")
    assert opened.is_visible("#own-clear")
    assert opened.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 22, 26)"
    context.close()


def test_what_ids_hold_is_text_and_not_markup(browser: Any, address: str) -> None:
    context = browser.new_context()
    opened = context.new_page()
    httpx.post(
        f"{address}/v1/users/{urllib.parse.quote(MARKUP)}/events",
        json={"events": [{"item": "i1", "time": 1_800_000_000}]},
    )
    opened.goto(f"{address}/?user={urllib.parse.quote(MARKUP)}")
    opened.wait_for_selector(".recs li")
    assert MARKUP in opened.locator("#status").text_content()
    assert opened.locator("main img").count() == 0
    context.close()
