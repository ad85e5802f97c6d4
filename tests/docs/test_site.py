"""The documents: links have targets, and the site is built from the documents alone."""

from __future__ import annotations

import functools
import importlib.util
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType

import pytest
from tests.docs.snippets import ROOT


def load_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_tool", ROOT / "tools" / "site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["site_tool"] = module
    spec.loader.exec_module(module)
    return module


TOOL = load_tool()


class Links(HTMLParser):
    """The links, loaded resources and anchors of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.assets: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name == "id" and value:
                self.anchors.add(value)
            elif name == "href" and value and tag == "a":
                self.links.append(value)
            elif name in ("src", "href", "srcset") and value:
                self.assets.append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory: Path = tmp_path_factory.mktemp("site")
    assert TOOL.build(ROOT, directory) == []
    return directory


@functools.cache
def read(page: Path) -> Links:
    links = Links()
    links.feed(page.read_text())
    return links


def pages(site: Path) -> Iterator[tuple[Path, Links]]:
    for page in sorted(site.rglob("*.html")):
        yield page, read(page)


def test_every_document_has_a_page_and_is_in_the_navigation(site: Path) -> None:
    listed = {link for link in read(site / "index.html").links if "#" not in link}
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    for document in documents:
        href = str(document.relative_to(ROOT)).replace("README.md", "index.html")
        href = href.removesuffix(".md") + (".html" if href.endswith(".md") else "")
        assert (site / href).is_file(), href
        assert href in listed


def test_every_link_of_the_site_has_a_target(site: Path) -> None:
    for page, found in pages(site):
        for link in found.links:
            if re.match(r"https?:|mailto:", link):
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            assert target.is_file(), f"{page.relative_to(site)}: {link}"
            if anchor:
                assert anchor in read(target).anchors, f"{page.relative_to(site)}: {link}"


def test_no_page_loads_anything_from_outside(site: Path) -> None:
    for page, found in pages(site):
        for asset in found.assets:
            assert not re.match(r"(https?:)?//", asset), f"{page.relative_to(site)}: {asset}"
        assert "<script" not in page.read_text()
    assert "url(" not in (site / "site.css").read_text()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[x](nowhere.md)", "README.md: nowhere.md leads nowhere"),
        ("![x](no.png)", "README.md: no.png leads nowhere"),
        ("[x](../outside.md)", "README.md: ../outside.md leads nowhere"),
        ("[x](#no-such)", "README.md: #no-such is no heading of README.md"),
        ("[x](docs/A.md#other)", "README.md: #other is no heading of docs/A.md"),
        ("[x](docs/A.md#good-news)", None),
        ("[x](https://example.org)", None),
    ],
)
def test_broken_link_fails_the_build(text: str, complaint: str | None, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "docs").mkdir(parents=True)
    (root / "README.md").write_text(f"# Home\n\n{text}\n")
    (root / "docs" / "A.md").write_text("# A\n\n## Good news\n")
    wrong = TOOL.build(root, tmp_path / "site")
    assert wrong == ([complaint] if complaint else [])


def test_code_in_documents_stays_code(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "README.md").write_text("# A <b>\n\n```python\nx = '<script>'\n```\n")
    assert TOOL.build(root, tmp_path / "site") == []
    page = (tmp_path / "site" / "index.html").read_text()
    assert "<script" not in page
    assert "<title>A &lt;b&gt;" in page
