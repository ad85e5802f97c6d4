"""The site: every Markdown document of the repository as HTML, with navigation, written to site/.

    python tools/site.py [DIRECTORY]

Pages keep their paths (docs/RAFT.md is docs/RAFT.html, README.md is index.html), so links do not
change. A broken link fails the build. Pages load nothing from other hosts. Needs markdown-it-py and
Pygments (dependencies of rich) and Jinja2 (a dependency of the console).
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from jinja2 import Environment
from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

ROOT = Path(__file__).resolve().parent.parent
HOME = "README.md"

SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Begin": ("README.md", "docs/TOUR.md", "docs/TESTING.md", "docs/GLOSSARY.md"),
    "Guides": (
        "docs/guides/clients.md",
        "docs/guides/pytest.md",
        "docs/guides/move-to-kafka.md",
        "docs/guides/operate.md",
    ),
    "Parts": (
        "docs/CONSOLE.md",
        "docs/COORDINATION.md",
        "docs/GATEWAY.md",
        "docs/CHAT.md",
        "docs/TASKS.md",
        "docs/SOURCES.md",
        "docs/PIPELINE.md",
    ),
    "How it works": (
        "ARCHITECTURE.md",
        "docs/RAFT.md",
        "docs/DIVERGENCE.md",
        "docs/SIMULATION.md",
        "docs/FAULTS.md",
        "docs/PERFORMANCE.md",
        "HACKING.md",
        "CHANGELOG.md",
        "docs/ORIGINS.md",
    ),
}
"""Documents that are not listed here appear in a last section, so that none is missing."""

TEMPLATE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }} · Kafkaesque</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="{{ up }}site.css">
</head>
<body>
<a class="skip" href="#content">Skip to the text</a>
<header><a href="{{ up }}index.html">Kafkaesque</a></header>
<nav aria-label="Documents">
{%- for section, pages in sections %}
<h2>{{ section }}</h2>
<ul>
{%- for page in pages %}
<li><a href="{{ up }}{{ page.href }}"{% if page.href == here %} aria-current="page"{% endif %}>
{{- page.title }}</a></li>
{%- endfor %}
</ul>
{%- endfor %}
</nav>
<main id="content">
{{ body | safe }}
</main>
</body>
</html>
"""

STYLE = """\
:root { color-scheme: light dark; --ink: #1d1d22; --paper: #fff; --side: #f5f4f0; --line: #e2e0da;
  --link: #a8430f; --code: #f7f6f2; --faint: #5f6068; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e4de; --paper: #17181b; --side: #1e1f23;
  --line: #34353b; --link: #f0915c; --code: #212227; --faint: #a3a4ab; } }
* { box-sizing: border-box; }
body { margin: 0; font: 16px/1.6 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  display: grid; grid-template-columns: 17rem minmax(0, 1fr); }
header { grid-column: 1 / -1; padding: .7rem 1.5rem; border-bottom: 1px solid var(--line);
  font-weight: 700; font-size: 1.1rem; }
header a { color: inherit; text-decoration: none; }
nav { background: var(--side); padding: .5rem 1.5rem 3rem; border-right: 1px solid var(--line);
  font-size: .92rem; }
nav h2 { font-size: .8rem; color: var(--faint); margin: 1.3rem 0 .3rem; }
nav ul { list-style: none; margin: 0; padding: 0; }
nav a { display: block; padding: .12rem .5rem; color: inherit; text-decoration: none;
  border-left: 3px solid transparent; }
nav a:hover { text-decoration: underline; }
nav a[aria-current] { border-color: var(--link); font-weight: 600; }
main { padding: 1rem 2.5rem 5rem; max-width: 60rem; }
h1 { font-size: 1.9rem; line-height: 1.25; } h2 { margin-top: 2.2rem; } h3 { margin-top: 1.6rem; }
a { color: var(--link); }
img { max-width: 100%; height: auto; border: 1px solid var(--line); border-radius: 6px; }
code, pre { font: .88em/1.5 ui-monospace, "DejaVu Sans Mono", monospace; background: var(--code);
  border-radius: 4px; }
code { padding: .1em .3em; }
pre { padding: .8rem 1rem; overflow-x: auto; border: 1px solid var(--line); }
pre code { padding: 0; background: none; font-size: 1em; }
.table { overflow-x: auto; }
table { border-collapse: collapse; font-size: .93rem; }
th, td { border-bottom: 1px solid var(--line); padding: .35rem .9rem .35rem 0; text-align: left;
  vertical-align: top; }
.skip { position: absolute; left: -99rem; } .skip:focus { left: 1rem; top: 1rem; }
@media (max-width: 50rem) { body { display: block; } nav { border: 0; } main { padding: 1rem; } }
@media print { nav, header { display: none; } body { display: block; } }
"""


@dataclass(frozen=True)
class Page:
    """A document: its path in the repository, its title and its address in the site."""

    source: str
    title: str
    href: str


@dataclass
class Site:
    """The site being built, and the errors found so far."""

    root: Path
    pages: dict[str, Page]
    wrong: list[str] = field(default_factory=list)
    copied: set[str] = field(default_factory=set)
    anchors: dict[str, set[str]] = field(default_factory=dict)
    wanted_anchors: list[tuple[str, str, str]] = field(default_factory=list)

    def target(self, page: Page, link: str) -> str:
        """The address of a page's `link` in the site, relative to that page."""
        parts = urlsplit(link)
        if parts.scheme in ("http", "https", "mailto"):
            return link
        fragment = f"#{parts.fragment}" if parts.fragment else ""
        path = page.source
        if parts.path:
            joined = PurePosixPath(page.source).parent / unquote(parts.path)
            path = os.path.normpath(str(joined))
        href = self._href(path)
        if href is None:
            self.wrong.append(f"{page.source}: {link} leads nowhere")
            return link
        if parts.fragment:
            self.wanted_anchors.append((page.source, path, parts.fragment))
        return (relative(href, page.href) if parts.path else "") + fragment

    def _href(self, path: str) -> str | None:
        if path in self.pages:
            return self.pages[path].href
        if f"{path}/README.md" in self.pages:
            return self.pages[f"{path}/README.md"].href
        if path == "docs/adr":
            return "docs/adr/index.html"
        file = self.root / path
        if path.startswith("..") or not file.is_file():
            return None
        self.copied.add(path)
        return path


def relative(href: str, here: str) -> str:
    return os.path.relpath(href, os.path.dirname(here) or ".")


def slug(heading: str) -> str:
    """GitHub's rule for the anchor of a heading."""
    text = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return text.replace(" ", "-")


def find_pages(root: Path) -> dict[str, Page]:
    files = [
        *root.glob("*.md"),
        *(root / "docs").rglob("*.md"),
        *(root / "examples").glob("*/README.md"),
    ]
    pages = {}
    for file in sorted(files):
        source = str(file.relative_to(root))
        heading = re.search(r"^# (.+)$", file.read_text(), re.MULTILINE)
        title = heading[1].replace("`", "") if heading else file.stem
        href = "index.html" if source == HOME else source.removesuffix(".md") + ".html"
        pages[source] = Page(source, title, href)
    return pages


def sections(pages: Mapping[str, Page]) -> list[tuple[str, list[Page]]]:
    named = [
        (name, [pages[source] for source in sources if source in pages])
        for name, sources in SECTIONS.items()
    ]
    decisions = [page for source, page in pages.items() if source.startswith("docs/adr/")]
    placed = {page.source for _, some in named for page in some} | {d.source for d in decisions}
    rest = [page for source, page in pages.items() if source not in placed]
    found = [*named, ("Decisions", decisions), ("More", rest)]
    return [(name, some) for name, some in found if some]


def fence(content: str, language: str) -> str:
    try:
        lexer = get_lexer_by_name({"sh": "console"}.get(language, language) or "text")
    except ClassNotFound:
        return f"<pre><code>{escape(content)}</code></pre>"
    inner = highlight(content, lexer, HtmlFormatter(nowrap=True))
    return f"<pre><code>{inner}</code></pre>"


def render(site: Site, page: Page) -> str:
    markdown = MarkdownIt("commonmark", {"highlight": None}).enable("table")
    tokens = markdown.parse((site.root / page.source).read_text())
    anchors = site.anchors.setdefault(page.source, set())
    for position, token in enumerate(tokens):
        if token.type == "heading_open":
            anchor = slug(_text(tokens[position + 1]))
            token.attrSet("id", anchor)
            anchors.add(anchor)
        elif token.type == "inline":
            for child in token.children or ():
                _relink(site, page, child)
    return "".join(_html(markdown, tokens))


def _text(inline: Token) -> str:
    return "".join(child.content for child in inline.children or ())


def _relink(site: Site, page: Page, token: Token) -> None:
    for attribute in ("href", "src"):
        link = token.attrGet(attribute)
        if isinstance(link, str):
            token.attrSet(attribute, site.target(page, link))


def _html(markdown: MarkdownIt, tokens: list[Token]) -> Iterator[str]:
    for token in tokens:
        if token.type == "fence":
            yield fence(token.content, token.info.strip())
        else:
            wide = token.type in ("table_open", "table_close")
            if wide and token.nesting == 1:
                yield '<div class="table">'
            yield markdown.renderer.render([token], markdown.options, {})
            if wide and token.nesting == -1:
                yield "</div>"


def style() -> str:
    light = HtmlFormatter(style="friendly").get_style_defs("pre")
    dark = HtmlFormatter(style="github-dark").get_style_defs("pre")
    light, dark = (
        "\n".join(
            line for line in rules.splitlines() if not re.match(r"pre \{|td|span|pre \.hll", line)
        )
        for rules in (light, dark)
    )
    return f"{STYLE}{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"


def build(root: Path, directory: Path) -> list[str]:
    """Writes the site. Returns the errors found in the documents, one sentence each."""
    site = Site(root, find_pages(root))
    shutil.rmtree(directory, ignore_errors=True)
    template = Environment(autoescape=True).from_string(TEMPLATE)
    navigation = sections(site.pages)

    def write(href: str, title: str, body: str) -> None:
        file = directory / href
        file.parent.mkdir(parents=True, exist_ok=True)
        up = relative("index.html", href).removesuffix("index.html")
        file.write_text(
            template.render(title=title, body=body, up=up, here=href, sections=navigation)
        )

    for page in site.pages.values():
        write(page.href, page.title, render(site, page))
    decisions = [page for page in site.pages.values() if page.source.startswith("docs/adr/")]
    items = "\n".join(
        f'<li><a href="{relative(page.href, "docs/adr/index.html")}">{escape(page.title)}</a></li>'
        for page in decisions
    )
    write("docs/adr/index.html", "Decisions", f"<h1>Decisions</h1>\n<ul>\n{items}\n</ul>")
    for path in sorted(site.copied):
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / path, directory / path)
    (directory / "site.css").write_text(style())
    return site.wrong + [
        f"{source}: #{anchor} is no heading of {path}"
        for source, path, anchor in site.wanted_anchors
        if anchor not in site.anchors.get(path, set())
    ]


def main() -> int:
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "site"
    wrong = build(ROOT, directory)
    for sentence in wrong:
        sys.stderr.write(f"{sentence}\n")
    sys.stdout.write(f"{len(list(directory.rglob('*.html')))} pages in {directory}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
