"""Rust's own documentation as the folder ``rust`` of the site, where ``SITE_RUST`` names what `cargo doc` wrote."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.pages import Page

PAGE = "reference/rust.md"
MARK = "<!-- crates -->"
CRATES = {
    "flagos_core": "operator registry, policy, plan, device runtime, C table",
    "flagos_comm": "collectives: shared memory, NCCL, FlagCX, HCCL; C table",
}


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Links the crates where they are in the site, and says how to read them where they are not."""
    if page.file.src_uri != PAGE:
        return markdown
    if "SITE_RUST" in os.environ:
        rows = [
            f'- <a href="../../rust/{crate}/index.html"><code>{crate}</code></a>: {words}'
            for crate, words in CRATES.items()
        ]
        return markdown.replace(MARK, "\n".join(rows))
    return markdown.replace(
        MARK,
        "This site was built without them. `make docs RUST=1` in a clone adds them, and `cargo doc --no-deps --open "
        "-p flagos-core -p flagos-comm` opens them alone.",
    )


def on_post_build(config: MkDocsConfig) -> None:
    """Copies what cargo wrote."""
    if "SITE_RUST" in os.environ:
        shutil.copytree(os.environ["SITE_RUST"], Path(config.site_dir) / "rust", dirs_exist_ok=True)
