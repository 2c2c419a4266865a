"""Text and files of others: what they have in them reaches no terminal as a command, and no file that they chose."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import flagos
from flagos import whole_file
from flagos.cli.output import printable
from python.tests.interpreters import Interpreter

EVIL = "\x1b]52;c;aGk=\x07\x9b2J"


@pytest.mark.parametrize("command", [("explain", "aten::mm"), ("devices",), ("doctor",)])
def test_a_configuration_that_is_found_sends_nothing_to_the_terminal(
    interpreter: Interpreter, command: tuple[str, ...]
) -> None:
    escaped = EVIL.encode("unicode_escape").decode().replace("\\x", "\\u00")
    (interpreter.folder / "flagos.toml").write_text(f'"polcy{escaped}" = "x"\n')
    result = interpreter.flagos(*command)
    text = result.out + result.err
    assert "polcy" in text or command[0] == "devices"
    assert {c for c in text if not c.isprintable()} <= {"\n", "\t"}


def test_what_a_terminal_would_obey_is_shown() -> None:
    assert printable(f"a{EVIL}\r\u202eb\n\tc") == "a\\x1b]52;c;aGk=\\x07\\x9b2J\\r\\u202eb\n\tc"
    assert printable("Größe × µ 中文") == "Größe × µ 中文"


@pytest.mark.parametrize("name", ["ns::a\0b", "ns::a\x1b[31m", "n\ns::a", "ns::", "ns::a b"])
def test_an_operator_of_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(flagos.InvalidArgumentError, match="is not the name of an operator"):
        flagos.Operator(name)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "made"
    whole_file.write(path, "first")

    def replace_in_part() -> None:
        with whole_file.replacing(path) as file:
            file.write(b"second")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        replace_in_part()
    assert path.read_text() == "first" and list(tmp_path.iterdir()) == [path]
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask


def test_a_link_that_somebody_left_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    # Even one that has the name which was drawn.
    monkeypatch.setattr(whole_file.secrets, "token_hex", lambda _: "drawn")
    (tmp_path / ".drawn").symlink_to(victim)
    with pytest.raises(FileExistsError):
        whole_file.write(tmp_path / "made", "theirs")
    assert victim.read_text() == "mine"
    # And one in the place of the file itself is replaced.
    (tmp_path / ".drawn").unlink()
    (tmp_path / "made").symlink_to(victim)
    whole_file.write(tmp_path / "made", "theirs")
    assert victim.read_text() == "mine" and not (tmp_path / "made").is_symlink()
