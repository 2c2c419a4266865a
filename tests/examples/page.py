"""docs/examples.md by its sections, each of which can be followed from the root of a clone."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from tests.followed import Reader

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.py"))
HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
_parts = HEADING.split(PAGE)
#: Heading → what is below it.
SECTIONS = dict(zip(_parts[1::2], _parts[2::2], strict=True))


def section(example: str) -> str:
    """What the page says of an example."""
    (found,) = (text for text in SECTIONS.values() if f"[{example}](../examples/{example})" in text)
    return found


def read(example: str, folder: Path, **variables: str) -> list[str]:
    """Follows the section of an example, and returns what was typed.

    The folder becomes the root of a clone, as far as the examples see one, so that they leave nothing in this one.
    """
    root = folder / "flagos"
    root.mkdir(exist_ok=True)
    (root / "examples").symlink_to(ROOT / "examples")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLAGOS_")}
    tools = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    reader = Reader(root, {**kept, "PATH": tools, "FLAGOS_VENDOR": "host", **variables})
    reader.follow(section(example))
    return reader.typed
