"""Links from docs/ to other files of the repository, which a code host follows, lead to a page of the site as well.

A file that is linked gets a page ``repository/<path>``: Markdown as it is, its own links followed likewise, and any
other text as a block of code. A folder stands for its README; a folder without one is named, not linked.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
DOCS = "docs/"
PREFIX = "repository/"
# Pages that only the site has: their links are those of their files, too.
REFERENCE, REFERENCE_FILES = "reference/", "website/reference/"
# Pages of the navigation that lie outside docs/.
ALWAYS = ("CONTRIBUTING.md", "CHANGELOG.md", "core/include/CHANGELOG.md", "SECURITY.md")
INDEX = ("benchmarks", "conformance")
LANGUAGES = {".toml": "toml", ".h": "c", ".py": "python", ".rs": "rust", ".c": "c", ".yml": "yaml"}
# Code is matched first, so that what looks like a link in it stays as it is.
TOKEN = re.compile(
    r"^(?P<fence>```+|~~~+).*?^(?P=fence)[ \t]*$|(?P<tick>`+)(?!`).+?(?<!`)(?P=tick)(?!`)|\]\((?P<link>[^()\s]+)\)",
    re.DOTALL | re.MULTILINE,
)
LINK = re.compile(r"\[([^\[\]]*)\]\(absent:\)")


def targets(markdown: str) -> Iterator[str]:
    """The relative links of a page, without their anchors."""
    for match in TOKEN.finditer(markdown):
        path = (match["link"] or "").partition("#")[0]
        if path and "://" not in path and not path.startswith(("mailto:", "/")):
            yield path


def resolved(origin: str, link: str) -> str | None:
    """What a link of the file ``origin`` means, from the root; a folder's README for a folder, None for nothing."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), link))
    if path.startswith("..") or not (ROOT / path).exists():
        return None
    if (ROOT / path).is_dir() and path.removeprefix(DOCS) not in INDEX:
        readme = f"{path}/README.md"
        return readme if (ROOT / readme).exists() else path
    return path


def source(path: str) -> str:
    """The name on the site of a file of the repository."""
    if path.startswith(REFERENCE_FILES):
        return REFERENCE + path.removeprefix(REFERENCE_FILES)
    if path.startswith(DOCS):
        inside = path.removeprefix(DOCS)
        return f"{inside}/index.md" if inside in INDEX else inside
    return PREFIX + (path if path.endswith(".md") else f"{path}.md")


def origin(uri: str) -> str:
    """The file of the repository that a page of the site shows."""
    if uri.startswith(REFERENCE):
        return REFERENCE_FILES + uri.removeprefix(REFERENCE)
    return uri.removeprefix(PREFIX) if uri.startswith(PREFIX) else DOCS + uri


def content(path: str) -> str:
    """What the page of a file outside docs/ says."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".md"):
        return text
    language = LANGUAGES.get(Path(path).suffix, "text")
    return f"# `{path}`\n\n```````{language}\n{text.rstrip()}\n```````\n"


def linked(files: Files) -> list[str]:
    """Every file outside docs/ that a page of the site links, in one step or in several."""
    found: dict[str, None] = dict.fromkeys(ALWAYS)
    waiting = [(origin(file.src_uri), file.content_string) for file in files.documentation_pages()]
    waiting += [(path, content(path)) for path in ALWAYS]
    while waiting:
        page, markdown = waiting.pop()
        for link in targets(markdown):
            path = resolved(page, link)
            if path is None or path in found or (ROOT / path).is_dir():
                continue
            if path.startswith((DOCS, REFERENCE_FILES)):
                continue
            found[path] = None
            if path.endswith(".md"):
                waiting.append((path, content(path)))
    return list(found)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds a page for every linked file outside docs/."""
    for path in linked(files):
        page = File.generated(
            config, source(path), content=content(path), inclusion=InclusionLevel.NOT_IN_NAV
        )
        files.append(page)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Has the links of a page lead to pages of the site. The search finds no code but that of headers."""
    here = page.file.src_uri
    code = here.startswith(PREFIX) and not (ROOT / origin(here)).exists()
    if code and not here.endswith(".h.md"):
        page.meta["search"] = {"exclude": True}

    def led(match: re.Match[str]) -> str:
        path, hash_, anchor = (match["link"] or "").partition("#")
        if not path or path not in set(targets(match[0])):
            return match[0]
        place = resolved(origin(here), path)
        if place is None:
            return match[0]
        if (ROOT / place).is_dir() and place.removeprefix(DOCS) not in INDEX:
            return "](absent:)"
        relative = posixpath.relpath(source(place), posixpath.dirname(here) or ".")
        return f"]({relative}{hash_}{anchor})"

    return LINK.sub(r"\1", TOKEN.sub(led, markdown))
