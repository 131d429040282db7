"""The documentation site builds without a warning, loads nothing from elsewhere, and its reference is complete."""

import json
import re
from pathlib import Path
from urllib.parse import urlparse

import pytest
import typer

import marsrec
from marsrec.cli import app

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
LINK = re.compile(r"\]\(([^()\s]+)\)")
CODE = re.compile(r"^ *```.*?^ *```$|`[^`\n]+`(?!\])", re.M | re.S)
LOADED = re.compile(r"<(?:script|img|iframe|source)[^>]* src=\"([^\"]+)\"|<link[^>]* href=\"([^\"]+)\"|url\(([^)]+)\)")
"""What a browser fetches by itself."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly: a warning, such as a dead link, ends the build. Notebooks are shown without outputs."""
    pytest.importorskip("material")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        patch.delenv("EXECUTE_NOTEBOOKS", raising=False)
        build(load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(folder)))
    return folder


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for file in [*site.rglob("*.html"), *site.rglob("*.css")]:
        for addresses in LOADED.findall(file.read_text()):
            address = "".join(addresses).strip("\"'")
            assert not urlparse(address).netloc, f"{file}: {address}"


def test_formulas_are_mathml(site: Path) -> None:
    pages = {file.name: file.read_text() for file in site.glob("*.html")}
    assert "<math" in pages["operator.html"]
    assert not [name for name, page in pages.items() if "arithmatex" in page]
    assert '<mo form="prefix">&#x02212;</mo><mi>λ</mi><mspace width="0.17em"/><mi>log</mi>' in pages["operator.html"]


def test_the_reference_has_every_name_command_and_address(site: Path) -> None:
    reference = {file.stem: file.read_text() for file in (site / "reference").glob("*.html")}
    python = "".join(reference.values())
    for name, home in marsrec._HOMES.items():
        defined = getattr(marsrec, name).__module__
        assert f'id="{defined}.{name}"' in python, home
    for command in typer.main.get_command(app).commands:  # type: ignore[attr-defined]
        assert f'id="marsrec-{command}"' in reference["command-line"]
    assert 'id="post-v1recommend"' in reference["http"]
    assert "<code>false</code>" in reference["http"]
    assert "<code>False</code>" not in reference["http"]
    assert "--min-user-events" in reference["command-line"]


def test_every_page_is_found_by_the_search(site: Path) -> None:
    found = {
        entry["location"].partition("#")[0]
        for entry in json.loads((site / "search/search_index.json").read_text())["docs"]
    }
    assert {"index.html", "glossary.html", "examples/tutorial.html", "reference/settings.html"} <= found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_of_a_page(page: Path) -> None:
    """Files are there; anchors and generated pages are checked by the build; addresses are well-formed."""
    for target in LINK.findall(CODE.sub("", page.read_text())):
        if ":" in target:
            address = urlparse(target)
            assert address.scheme in ("https", "mailto"), f"{page}: {target}"
            assert address.netloc or address.scheme == "mailto"
        elif path := target.partition("#")[0]:
            made = path.removeprefix("../").startswith("reference/")
            assert made or (page.parent / path).exists(), f"{page}: {target}"
