"""Titles, categories and sentences on the page."""

import re
from typing import Any

import httpx
from tests.serve.page.conftest import CATEGORIES, MARKUP, find, recommended, shows


def named(page: Any) -> None:
    page.select_option("#model", "shop")
    page.wait_for_selector("article[data-model=shop] .recs li")
    find(page, "u7")


def test_titles_come_first_then_category_and_id(page: Any) -> None:
    named(page)
    item = page.locator(".recs > li:has(.about)").first
    number = int(item.get_attribute("data-item")[1:])
    assert item.locator(".name").text_content() == f"Article {number}"
    assert item.locator(".about").text_content() == f"{CATEGORIES[number % 3]}i{number}"
    assert item.locator(".kind svg .mark").count() == 1
    untitled = page.locator(".recs > li[data-item=i18], .recs > li[data-item=i19]").first
    assert untitled.locator(".name").text_content() in ("i18", "i19")
    assert untitled.locator(".about").count() == 0


def test_an_item_opens_with_its_sentence_above_the_figures(page: Any, address: str) -> None:
    named(page)
    latest = httpx.get(f"{address}/v1/users/u7").json()["history"][-1]["time"]
    asked = {"model": "shop", "at": latest, "explain": True}
    items = httpx.get(f"{address}/v1/users/u7/recommendations", params=asked).json()["items"]
    assert recommended(page, "shop") == [entry["item"] for entry in items]
    assert page.locator("article > .sentence").text_content() == items[0]["explanation"]["sentence"]
    second = page.locator(".recs > li").nth(1)
    second.locator(".rec").click()
    above, figures = second.locator(".why .sentence"), second.locator(".why table")
    assert above.text_content() == items[1]["explanation"]["sentence"]
    assert above.bounding_box()["y"] < figures.bounding_box()["y"]


def test_events_have_the_marks_of_their_categories_and_a_legend(page: Any, address: str) -> None:
    named(page)
    dots = page.locator("svg.timeline .dot")
    assert dots.count() == 6 * 4
    titles = dots.locator("title").all_text_contents()
    said = page.locator("p.latest").text_content()
    *_, last = httpx.get(f"{address}/v1/users/u7?model=shop").json()["history"]
    assert said.startswith(f"Latest events: {last['title'] or last['item']} at the request; ")
    kinds = {match[1] for text in titles if (match := re.search(r"\((.*?)\)[^)]*: ", text.replace("(1)", "")))}
    shown = page.locator("ul[aria-label=Categories] .kind").all_text_contents()
    assert sorted(shown) == sorted(kinds)
    assert kinds <= set(CATEGORIES)
    marks = {dot.get_attribute("d"): dot.get_attribute("class") for dot in dots.all() if dot.get_attribute("d")}
    assert len(marks) == len(set(marks.values())) == len(kinds)  # a shape and a colour each


def test_items_are_found_by_title_and_category_and_nothing_says_so(page: Any) -> None:
    named(page)
    page.fill("#item-search", "coff")
    page.wait_for_function("() => document.querySelectorAll('#items button').length === 6")
    assert page.locator("#items .kind").all_text_contents() == ["Coffee"] * 6
    page.fill("#item-search", "beer")
    shows(page, "#items", "No item has “beer” in its id, title or category.")


def test_titles_are_text_and_not_markup(page: Any) -> None:
    """The page's fixture fails at a dialog, and at a request to anywhere else."""
    named(page)
    page.fill("#item-search", "onerror")
    page.click("#items button[data-item=i0]")
    shows(page, "#undo", f"Take {MARKUP} back")
    page.locator("summary").first.click()
    shows(page, "table.events", MARKUP)
    page.click("#tab-own")
    page.click("#items button[data-item=i0]")
    shows(page, "#own-events", MARKUP)
    assert page.locator("main img, main b").count() == 0
