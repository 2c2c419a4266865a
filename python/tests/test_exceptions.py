"""Exceptions are flagos' own and, at the same time, what a caller would catch anyway."""

from __future__ import annotations

import pickle

import pytest

import flagos
from flagos import _core


@pytest.mark.parametrize(
    ("exception", "builtin"),
    [
        (flagos.ConfigError, ValueError),
        (flagos.InvalidArgumentError, ValueError),
        (flagos.OutOfMemoryError, RuntimeError),
        (flagos.DeviceError, RuntimeError),
        (flagos.UnsupportedError, NotImplementedError),
        (flagos.ForkedError, RuntimeError),
    ],
)
def test_bases(exception: type[flagos.FlagosError], builtin: type[Exception]) -> None:
    assert issubclass(exception, flagos.FlagosError)
    assert issubclass(exception, builtin)
    assert exception.__doc__


def test_they_are_named_where_users_find_them() -> None:
    assert flagos.ConfigError.__module__ == "flagos"
    again = pickle.loads(pickle.dumps(flagos.ConfigError("text")))
    assert type(again) is flagos.ConfigError
    assert again.args == ("text",)


def test_an_error_of_the_core_carries_kind_and_hint() -> None:
    with pytest.raises(flagos.InvalidArgumentError) as caught:
        _core.register_impl("not a name", "x.y", "flagos")
    assert caught.value.kind == "invalid argument"
    assert "aten::add.Tensor" in (caught.value.hint or "")
    assert "\n" not in str(caught.value)
