"""Pages of the site that stand elsewhere in the repository: README, CONTRIBUTING, CHANGELOG and the notebooks.

Links keep working on both sides: in a file they lead to files of the repository, on the site to its pages. A link to a
file that is no page, such as one of the code, becomes plain text.
"""

import os
import posixpath
import re
from pathlib import Path
from typing import Any

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from nbconvert import MarkdownExporter

ROOT = Path(__file__).parents[2]
ELSEWHERE = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Files of the repository, and the pages that they become."""
ELSEWHERE |= {
    f"examples/{notebook.name}": f"examples/{notebook.stem}.md" for notebook in (ROOT / "examples").glob("*.ipynb")
}
SOURCES = {page: source for source, page in ELSEWHERE.items()}
LINK = re.compile(
    r"^ *```.*?^ *```$"  # in code nothing is a link
    r"|(?P<image>!?)\[(?P<text>[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*)\]\((?P<target>[^()\s]+)\)"
    r"|`[^`\n]+`",
    re.M | re.S,
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages; `EXECUTE_NOTEBOOKS=true` runs the notebooks and shows what they print."""
    for source, page in ELSEWHERE.items():
        if source.endswith(".ipynb"):
            text, pictures = _notebook(ROOT / source)
            for name, data in pictures.items():
                files.append(File.generated(config, posixpath.join("examples", name), content=data))
        else:
            text = (ROOT / source).read_text(encoding="utf-8")
            if page == "index.md":  # it stands alone in its section
                text = f"---\nhide: [navigation]\n---\n\n{text}"
        files.append(File.generated(config, page, content=text))
    return files


def _notebook(path: Path) -> tuple[str, dict[str, bytes]]:
    """A notebook as Markdown, and its pictures by name."""
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    if os.environ.get("EXECUTE_NOTEBOOKS") == "true":
        from nbclient import NotebookClient

        quiet = ["--IPKernelApp.log_level=ERROR"]  # it warns that whoever is on this machine can listen
        NotebookClient(notebook, extra_arguments=quiet, resources={"metadata": {"path": str(path.parent)}}).execute()
    text, resources = MarkdownExporter().from_notebook_node(notebook, {"unique_key": path.stem})
    return text, resources["outputs"]


def on_page_markdown(markdown: str, page: Page, files: Files, **_: Any) -> str:
    """Let links lead to pages of the site."""
    source = SOURCES.get(page.file.src_uri, posixpath.join("docs", page.file.src_uri))
    here = posixpath.dirname(page.file.src_uri)

    def mended(found: re.Match[str]) -> str:
        text = LINK.sub(mended, found["text"] or "")  # which may be a picture
        target, hash_, anchor = (found["target"] or "").partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        place = ELSEWHERE.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        if place is None and (ROOT / path).exists():
            return text
        if place is None:
            return found[0]  # which mkdocs then finds broken
        return f"{found['image']}[{text}]({posixpath.relpath(place, here or '.')}{hash_}{anchor})"

    return LINK.sub(mended, markdown)
