"""Which modules of a Rust crate name which, read from its sources."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

Module = tuple[str, ...]
"""A module's path below its crate: `("runtime", "pool")`; the crate itself is `()`."""

Circles = dict[Module, list[str]]
"""By folder, its modules that lead back to the first of them."""

OWN = "mod.rs"
"""The code of a folder's own module, beside the modules in the folder."""

SEGMENT = r"(?:r#)?\w+"
TEST_MODULE = re.compile(r"#\[cfg\((?:all\()?test\b[^\n]*\]\s*mod \w+ \{")
USE = re.compile(r"(?P<public>\bpub(?:\([^)]*\))?\s+)?\buse\s+(?P<tree>[^;]+);")


def without_comments(source: str) -> str:
    """Rust source without line and block comments: documentation may link anywhere."""
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", source, flags=re.DOTALL)


def paths_of_use(tree: str) -> Iterator[list[str]]:
    """`a::{b, c::{d, e as f}}` → `[a, b]`, `[a, c, d]`, `[a, c, e]`."""
    group = re.fullmatch(rf"\s*((?:{SEGMENT}::)*)\{{(.*)\}}\s*", tree, re.DOTALL)
    if group is None:
        yield re.sub(r"\s+as\s+\w+", "", tree).strip().split("::")
        return
    depth, member, members = 0, "", []
    for character in group[2]:
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            members.append(member)
            member = ""
        else:
            member += character
    members.append(member)
    for inner in filter(str.strip, members):
        for path in paths_of_use(inner):
            yield [*re.findall(SEGMENT, group[1]), *path]


class Crate:
    """The modules of a crate, with what each uses and which names of its children it passes on."""

    def __init__(self, sources: dict[Module, str]) -> None:
        code = {
            name: without_comments(TEST_MODULE.split(text)[0]) for name, text in sources.items()
        }
        self.code = {name: USE.sub("", text) for name, text in code.items()}
        self.uses = {
            name: [
                (bool(use["public"]), path)
                for use in USE.finditer(text)
                for path in paths_of_use(use["tree"])
            ]
            for name, text in code.items()
        }
        self.exports: dict[Module, dict[str, Module]] = {name: {} for name in code}
        for name, uses in self.uses.items():
            for public, path in uses:
                if public and self.is_child(name, path):
                    child = path[1] if path[0] == "self" else path[0]
                    self.exports[name][path[-1]] = (*name, child)

    def is_child(self, name: Module, path: list[str]) -> bool:
        first = path[1:2] if path[0] == "self" else path[:1]
        return (*name, *first) in self.code and bool(first)

    def target(self, name: Module, path: list[str]) -> Module | None:
        """The module that a path in module `name` leads into; None for another crate's."""
        if path[0] == "crate":
            at, rest = (), path[1:]
        elif path[0] == "self":
            at, rest = name, path[1:]
        elif path[0] == "super":
            rest = path
            at = name
            while rest and rest[0] == "super":
                at, rest = at[:-1], rest[1:]
        elif self.is_child(name, path):
            at, rest = name, path
        else:
            return None
        for segment in rest:
            if (*at, segment) in self.code:
                at = (*at, segment)
            else:
                return self.exports.get(at, {}).get(segment, at)
        return at

    def named(self, name: Module) -> set[Module]:
        """The modules that the code of a module names. Passing names on is not naming."""
        paths = [path for public, path in self.uses[name] if not public]
        paths += [path.split("::") for path in re.findall(r"\b\w+(?:::\w+)+", self.code[name])]
        found = {self.target(name, path) for path in paths}
        words = set(re.findall(r"\w+", self.code[name]))
        found |= {module for word, module in self.exports[name].items() if word in words}
        return {module for module in found if module is not None and module != name}

    def graphs(self) -> dict[Module, dict[str, set[str]]]:
        """By folder: its modules, each with those beside it that it names. What a module in a subfolder names, the
        subfolder names."""
        graphs: dict[Module, dict[str, set[str]]] = {}
        for name in self.code:
            for depth in range(len(name)):
                graphs.setdefault(name[:depth], {OWN: set()}).setdefault(name[depth], set())
        for name in self.code:
            for other in self.named(name):
                depth = next(
                    (i for i, (a, b) in enumerate(zip(name, other, strict=False)) if a != b),
                    min(len(name), len(other)),
                )
                a = name[depth] if depth < len(name) else OWN
                b = other[depth] if depth < len(other) else OWN
                graphs[name[:depth]][a].add(b)
        return graphs

    def circles(self) -> Circles:
        """The folders with modules that need each other."""
        found = {folder: circle(graph) for folder, graph in self.graphs().items()}
        return {folder: names for folder, names in found.items() if names}


def crates(root: Path) -> dict[Path, Crate]:
    """The crates below a folder: each folder with a `lib.rs` or `main.rs`, and each topmost one of single files, as
    `tests` and `benches` are. Unit tests are left out."""
    sources: dict[Path, dict[Module, str]] = {}
    for file in rust_files(root):
        folders = [folder for folder in file.parents if folder.is_relative_to(root)]
        home = next(
            (f for f in folders if (f / "lib.rs").exists() or (f / "main.rs").exists()),
            next(f for f in reversed(folders) if any(f.glob("*.rs"))),
        )
        name = file.relative_to(home).with_suffix("").parts
        if not any(part.endswith("tests") for part in name):
            name = name[:-1] if name[-1] in ("mod", "lib", "main") else name
            sources.setdefault(home, {})[name] = file.read_text()
    return {home: Crate(files) for home, files in sorted(sources.items())}


def rust_files(folder: Path) -> Iterator[Path]:
    """The Rust files below a folder, but those that are built or installed."""
    for entry in sorted(folder.iterdir()):
        if entry.is_dir() and not entry.name.startswith(".") and entry.name != "target":
            yield from rust_files(entry)
        elif entry.suffix == ".rs":
            yield entry


def circle(named: dict[str, set[str]]) -> list[str]:
    """Names that lead back to the first of them; empty when none do."""
    done: set[str] = set()

    def follow(name: str, way: list[str]) -> list[str]:
        if name in way:
            return [*way[way.index(name) :], name]
        if name in done:
            return []
        found = next(
            filter(None, (follow(other, [*way, name]) for other in sorted(named[name]))), []
        )
        done.add(name)
        return found

    return next(filter(None, (follow(name, []) for name in sorted(named))), [])
