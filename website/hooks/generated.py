"""Pages that are not in docs/: the API reference of ``website/reference``, and an index for each folder of reports."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

HERE = Path(__file__).resolve().parents[1]
INDEXES = {
    "benchmarks": (
        "Benchmarks",
        "A page for each subject. A report says when, where and by which command it was made; the newest come first.",
    ),
    "conformance": (
        "Conformance",
        "The sweep over PyTorch's operator databases: every operator on flagos beside the native device.",
    ),
}


def title(page: Path) -> str:
    """The first heading of a page, or its name."""
    heading = re.search(r"^# (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return heading[1] if heading else page.stem


def index(folder: Path) -> str:
    """A list of the folder's pages."""
    name, words = INDEXES[folder.name]
    pages = sorted(page for page in folder.glob("*.md") if page.stem != "index")
    lines = [f"- [{title(page)}]({page.name})" for page in pages]
    return "\n".join([f"# {name}", "", words, "", *lines, ""])


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages, and the site's own style."""
    for page in sorted((HERE / "reference").glob("*.md")):
        files.append(File.generated(config, f"reference/{page.name}", abs_src_path=str(page)))
    for folder in INDEXES:
        content = index(Path(config.docs_dir) / folder)
        files.append(File.generated(config, f"{folder}/index.md", content=content))
    style = str(HERE / "site.css")
    files.append(File.generated(config, "assets/site.css", abs_src_path=style))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Sets what front matter says elsewhere: in docs/ that would be a table on a code host."""
    if page.file.src_uri == "index.md":
        # The whole width.
        page.meta["hide"] = ["navigation", "toc"]
    elif page.file.src_uri.startswith(("benchmarks/", "repository/")):
        # Guides are found before reports, and before what is for who works on flagos.
        page.meta["search"] = {"boost": 0.1}
    return markdown
