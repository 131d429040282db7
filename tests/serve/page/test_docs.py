"""The API reference: it has what the OpenAPI document has, and sends requests."""

import json
import re
from typing import Any

import httpx
import pytest
from tests.serve.page.conftest import shows


@pytest.fixture
def docs(opened: Any, address: str) -> Any:
    opened.goto(f"{address}/docs")
    opened.wait_for_selector("article")
    return opened


def test_every_address_parameter_field_and_error_is_there(docs: Any, address: str) -> None:
    document = httpx.get(f"{address}/openapi.json").json()
    schemas = document["components"]["schemas"]
    for path, ways in document["paths"].items():
        for method, way in ways.items():
            name = re.sub("[^a-z0-9]+", "-", f"{method}-{path}")
            text = docs.locator(f"article#{name}").text_content()
            assert text.startswith(f"{method.upper()} {path}")
            for status, answer in way["responses"].items():
                if not status.startswith("2"):
                    assert f"{status}: {answer['description'].replace('`', '')}" in text
            for parameter in way.get("parameters", []):
                assert f"{parameter['name']}" in text
    assert docs.locator("article[id^=schema-]").count() == len(schemas)
    for name, schema in schemas.items():
        fields = docs.locator(f"article#schema-{name} tbody tr td:first-child").all_text_contents()
        assert fields == list(schema.get("properties", {}))
    links = docs.locator("a[href^='#']").evaluate_all(
        "links => links.map((link) => link.getAttribute('href').slice(1))"
    )
    assert all(docs.evaluate("id => document.getElementById(id) !== null", link) for link in set(links))


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        ("post-v1-recommend", '"source": "model"'),
        ("get-v1-users-user-recommendations", '"rank": 1'),
        ("get-v1-items-item-similar", '"similarity"'),
        ("post-v1-users-user-events", '"new": 1'),
    ],
)
def test_a_request_can_be_sent_as_it_is_prefilled(docs: Any, operation: str, words: str) -> None:
    article = docs.locator(f"article#{operation}")
    article.locator("summary", has_text="Try it").click()
    article.locator("form button").click()
    shows(docs, f"#{operation} .answer", "200, after")
    answer = article.locator(".answer pre").nth(1).text_content()
    assert words in answer
    assert json.loads(answer)
    assert article.locator(".answer pre").nth(0).text_content().startswith("curl 'http://127.0.0.1:")


def test_an_error_is_shown_with_its_remedy(docs: Any) -> None:
    article = docs.locator("article#post-v1-recommend")
    article.locator("summary", has_text="Try it").click()
    article.locator("textarea").fill('{"k": 0}')
    article.locator("form button").click()
    shows(docs, "#post-v1-recommend .answer", "422, after")
    shows(docs, "#post-v1-recommend .answer", "Correct these fields; /openapi.json describes them.")


def test_on_a_phone_nothing_is_wider_than_the_screen(docs: Any) -> None:
    docs.set_viewport_size({"width": 390, "height": 844})
    assert docs.evaluate("document.documentElement.scrollWidth") <= 390
