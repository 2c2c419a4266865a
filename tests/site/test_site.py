"""The site builds without a warning, has every page and every public name, and refuses links that lead nowhere."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Page of the reference → the module that it is about.
MODULES = {
    "flagos": "python/flagos/__init__.py",
    "torch-flagos": "adapters/torch/python/torch_fl/flagos/__init__.py",
    "torch-fl": "adapters/torch/python/torch_fl/__init__.py",
    "te-fl": "adapters/te/python/te_fl/__init__.py",
    "flagos-serving": "adapters/serving/python/flagos_serving/__init__.py",
    "vllm-flagos": "adapters/vllm/python/vllm_flagos/__init__.py",
    "sglang-flagos": "adapters/sglang/python/sglang_flagos/__init__.py",
    "flagos-trainers": "adapters/trainers/python/flagos_trainers/__init__.py",
    "lightx2v-fl": "adapters/lightx2v/python/lightx2v_fl/__init__.py",
}
# The version, and the module that has a page of its own.
UNDESCRIBED = {"__version__", "flagos"}


def copied(to: Path) -> Path:
    """The repository's own files, to be changed."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, to / name)
    return to


def build(root: Path) -> subprocess.CompletedProcess[str]:
    """What MkDocs says."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--config-file", "website/mkdocs.yml"],
        cwd=root,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository with its site."""
    copy = copied(tmp_path_factory.mktemp("repository"))
    built = build(copy)
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    return copy


class Page(HTMLParser):
    """The links of a page, what it fetches, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif "src" in values:
            self.fetched.append(values["src"])
        elif tag == "link" and values.get("rel") in ("stylesheet", "icon", "preconnect"):
            self.fetched.append(values["href"])


@cache
def page(file: Path) -> Page:
    """A page of the site."""
    return Page(file.read_text(encoding="utf-8"))


def pages(root: Path) -> Iterator[Path]:
    """Every page of the site but the one for pages that do not exist, whose links begin with the site's root."""
    yield from (file for file in sorted((root / "site").rglob("*.html")) if file.name != "404.html")


def missing(root: Path) -> list[str]:
    """Links within the site that lead to no file, or to no place in it."""
    found = []
    for file in pages(root):
        for link in page(file).links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            lost = not target.exists() or (
                anchor and target.suffix == ".html" and anchor not in page(target).anchors
            )
            if lost:
                found.append(f"{file.relative_to(root / 'site')}: {link}")
    return found


def test_every_link_of_the_site_leads_somewhere(root: Path) -> None:
    assert missing(root) == []


def test_every_page_of_docs_is_in_the_site(root: Path) -> None:
    for file in (ROOT / "docs").rglob("*.md"):
        place = file.relative_to(ROOT / "docs").with_suffix("")
        folder = place.parent if place.name == "index" else place
        assert (root / "site" / folder / "index.html").exists(), file


def test_nothing_is_fetched_from_another_host(root: Path) -> None:
    fetched = {url for file in pages(root) for url in page(file).fetched}
    assert fetched
    assert {url for url in fetched if urlsplit(url).netloc} == set()


def public(module: str) -> set[str]:
    """The names of ``__all__``."""
    for node in ast.parse((ROOT / module).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names = ast.literal_eval(node.value)
            return set(names) - UNDESCRIBED
    raise AssertionError(f"{module} has no __all__")


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_is_in_the_reference(name: str, root: Path) -> None:
    file = root / "site" / "reference" / name / "index.html"
    described = {anchor.rpartition(".")[2] for anchor in page(file).anchors}
    # What a static reader cannot describe is told in the page's own words.
    described |= set(re.findall(r"<code>(\w+)</code>", file.read_text(encoding="utf-8")))
    assert public(MODULES[name]) - described == set()


def test_docstrings_are_markdown(root: Path) -> None:
    for name in MODULES:
        text = (root / "site" / "reference" / name / "index.html").read_text(encoding="utf-8")
        assert re.findall(r":(?:func|class|meth|mod|data):<code>", text) == []
        assert re.findall(r"<blockquote>", text) == []


def test_code_in_a_table_has_no_escapes(root: Path) -> None:
    assert "`vendor\\|cpu`" in (ROOT / "docs" / "environment.md").read_text(encoding="utf-8")
    text = (root / "site" / "environment" / "index.html").read_text(encoding="utf-8")
    assert "<code>vendor|cpu</code>" in text
    assert "\\|" not in text


def test_a_file_outside_docs_that_a_page_links_has_a_page(root: Path) -> None:
    table = root / "site" / "repository" / "tests" / "circles" / "parts.toml" / "index.html"
    assert "outer_seconds" in table.read_text(encoding="utf-8")
    assert (
        "../repository/tests/circles/parts.toml/"
        in page(root / "site" / "testing" / "index.html").links
    )


def test_the_index_of_benchmarks_has_every_page(root: Path) -> None:
    links = page(root / "site" / "benchmarks" / "index.html").links
    names = {f"{path.stem}/" for path in (ROOT / "docs" / "benchmarks").glob("*.md")}
    assert names and names <= {link.removeprefix("../benchmarks/") for link in links}


FLAWS = {
    "a page that is not there": ("install.md", "[more](instal.md)", "instal.md"),
    "an anchor that is not there": ("install.md", "[more](devices.md#nowhere)", "#nowhere"),
    "a file of the repository that is not there": (
        "testing.md",
        "[x](../tests/no.toml)",
        "no.toml",
    ),
    "a page that the navigation lacks": ("new.md", "# New", "new.md"),
}


@pytest.mark.parametrize(("file", "text", "report"), FLAWS.values(), ids=FLAWS)
def test_a_flaw_fails_the_build(file: str, text: str, report: str, tmp_path: Path) -> None:
    copy = copied(tmp_path)
    with (copy / "docs" / file).open("a", encoding="utf-8") as out:
        out.write(f"\n{text}\n")
    built = build(copy)
    assert built.returncode != 0
    assert report in built.stderr


def test_a_link_that_leads_nowhere_is_found(root: Path, tmp_path: Path) -> None:
    """The check of links above sees what MkDocs does not: links in pages as they are served."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text(
        '<a href="a/">a</a> <a href="#b">b</a> <p id="c">'
    )
    assert missing(tmp_path) == ["index.html: a/", "index.html: #b"]


def test_rusts_documentation_is_linked_where_it_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = copied(tmp_path / "repository")
    for crate in ("flagos_core", "flagos_comm"):
        (tmp_path / "doc" / crate).mkdir(parents=True)
        (tmp_path / "doc" / crate / "index.html").write_text(f"<title>{crate}</title>")
    monkeypatch.setenv("SITE_RUST", str(tmp_path / "doc"))
    built = build(copy)
    assert built.returncode == 0, built.stderr
    rust = page(copy / "site" / "reference" / "rust" / "index.html")
    assert "../../rust/flagos_core/index.html" in rust.links
    assert missing(copy) == []
