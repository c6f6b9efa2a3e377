"""What `make docs` does besides what MkDocs does: the site has the files that pages link to outside of docs/.

In the repository a link such as `../examples/worker.py` leads to the file itself. On the site it leads to a page below
`repository/` that shows it: Markdown as a page like any other, a folder as a list, all else as text. So every link is
written once, for both. Headings get the names that they have in the repository, and `adr/*` in the navigation stands
for all decisions.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
OUTSIDE = "repository"

_FENCE = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)(?=[#)])")
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".toml": "toml", ".json": "json", ".proto": "proto"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.mdx_configs.setdefault("toc", {})["slugify"] = slug
    config.nav = expanded(config.nav)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path in outside():
        content = page_of(path)
        files.append(File.generated(config, place(path), content=content, inclusion=InclusionLevel.NOT_IN_NAV))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    source = repository_path(page.file.src_uri)
    if source.suffix != ".md":
        return markdown
    return rewritten(markdown, source)


def slug(heading: str, separator: str) -> str:
    """The name by which a link reaches a heading, the same as where the repository is shown."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def expanded(nav: Any) -> Any:
    """`adr/*` is the index of the decisions and all of them."""
    if isinstance(nav, list):
        return [expanded(each) for each in nav]
    if isinstance(nav, dict):
        return {title: expanded(each) for title, each in nav.items()}
    if nav == "adr/*":
        decisions = sorted(path.name for path in (DOCS / "adr").glob("[0-9]*.md"))
        return ["adr/README.md", *(f"adr/{name}" for name in decisions)]
    return nav


def place(path: Path) -> str:
    """Where the site has what the repository has at `path`."""
    if path.is_relative_to(DOCS):
        inside = path.relative_to(DOCS).as_posix()
        return f"{inside}/README.md" if path.is_dir() else inside
    relative = path.relative_to(ROOT).as_posix()
    if path.is_dir():
        return f"{OUTSIDE}/{relative}/index.md"
    return f"{OUTSIDE}/{relative}" if path.suffix == ".md" else f"{OUTSIDE}/{relative}.md"


def repository_path(uri: str) -> Path:
    """The other way round, of a page that is Markdown in the repository; of others, something that is no such file."""
    if not uri.startswith(f"{OUTSIDE}/"):
        return DOCS / uri
    path = ROOT / uri.removeprefix(f"{OUTSIDE}/")
    return path if path.exists() else path.with_suffix("")


def outside() -> list[Path]:
    """Everything outside of docs/ that a page links to, or that such a page links to."""
    found: set[Path] = set()
    waiting = sorted(DOCS.rglob("*.md"))
    while waiting:
        source = waiting.pop()
        for target in targets(source):
            if not target.is_relative_to(DOCS) and target not in found:
                found.add(target)
                if target.suffix == ".md":
                    waiting.append(target)
    return sorted(found)


def targets(source: Path) -> Iterator[Path]:
    if source.is_dir():
        yield from sorted(path for path in source.iterdir() if path.is_file())
    elif source.suffix == ".md":
        for text in _FENCE.split(source.read_text())[::2]:
            for link in _LINK.findall(text):
                path = resolved(source, link)
                if path.is_relative_to(ROOT) and path.exists():
                    yield path


def resolved(source: Path, link: str) -> Path:
    return Path(os.path.normpath(source.parent / link))


def rewritten(markdown: str, source: Path) -> str:
    """With links that lead to where the site has the same; those that lead nowhere stay, for MkDocs to complain of."""
    here = PurePosixPath(place(source)).parent

    def link(found: re.Match[str]) -> str:
        path = resolved(source, found[1])
        if not path.exists() or not path.is_relative_to(ROOT):
            return found[1]
        return os.path.relpath(place(path), here)

    pieces = _FENCE.split(markdown)
    return "".join(_LINK.sub(link, piece) if number % 2 == 0 else piece for number, piece in enumerate(pieces))


def page_of(path: Path) -> str:
    if path.suffix == ".md":
        return path.read_text()
    name = path.relative_to(ROOT).as_posix()
    head = f"---\nsearch:\n  exclude: true\n---\n\n# {name}\n\n"
    if path.is_dir():
        return head + "".join(f"- `{each.name}`\n" for each in sorted(path.iterdir()) if each.is_file())
    language = _LANGUAGES.get(path.suffix, "text")
    return f"{head}````{language}\n{path.read_text().rstrip()}\n````\n"
