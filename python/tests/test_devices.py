"""Devices and the C table, as an adapter gets it."""

from __future__ import annotations

import ctypes
import json
import re
from pathlib import Path

import pytest

import flagos
from flagos import _core
from flagos.runtime import VendorInfo
from python.tests.interpreters import Interpreter


def test_a_device_is_described() -> None:
    flagos.initialize()
    devices = flagos.devices()
    assert flagos.device_count() == len(devices) >= 1
    for index, device in enumerate(devices):
        assert device["index"] == index
        assert device["name"] and device["vendor"]
        assert device["total_memory"] > 0
        assert device["multi_processor_count"] > 0


def test_the_number_of_host_devices_follows_the_variable(interpreter: Interpreter) -> None:
    program = "import flagos; print(flagos.device_count(), len(flagos.devices()))"
    variables = {"FLAGOS_VENDOR": "host", "FLAGOS_HOST_DEVICES": "3"}
    assert interpreter.program(program, **variables).out == "3 3\n"


def test_a_vendor_that_is_asked_for_is_never_replaced(interpreter: Interpreter) -> None:
    result = interpreter.flagos("devices", FLAGOS_VENDOR="cuda", CUDA_VISIBLE_DEVICES="")
    assert result.status == 1
    assert "vendor `cuda` cannot be used" in result.err and "host" in result.err


def test_streams_of_the_host_have_no_handle(interpreter: Interpreter) -> None:
    """Handles of another vendor: `core/vendors/ascend/tests/triton_ascend`."""
    program = (
        "from flagos import _core, InvalidArgumentError\n"
        "_core.init()\n"
        "print(_core.stream_handle(0, 0))\n"
        "for device, stream in ((9, 0), (-1, 0), (0, 1 << 40)):\n"
        "    try: _core.stream_handle(device, stream)\n"
        "    except InvalidArgumentError as error: print('refused')\n"
    )
    result = interpreter.program(program, FLAGOS_VENDOR="host", FLAGOS_HOST_DEVICES="1")
    assert result.out == "None\nrefused\nrefused\nrefused\n", result.err


def test_vendors_say_why_without_starting(interpreter: Interpreter) -> None:
    program = (
        "import flagos, os\n"
        "for vendor in flagos.vendors():\n"
        "    if vendor['source'] == 'built in': print(vendor['name'], vendor['chosen'])\n"
        "child = os.fork()\n"
        "if child == 0: os._exit(len(flagos.devices()))\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    result = interpreter.program(program, CUDA_VISIBLE_DEVICES="")
    assert result.out == "cuda False\nhost True\n1\n", result.err


def test_the_vendor_is_described(interpreter: Interpreter) -> None:
    program = (
        "import json, os\n"
        "from flagos import _core\n"
        "print(json.dumps(_core.vendor_info()))\n"
        "child = os.fork()\n"
        "if child == 0: os._exit(len(_core.devices()))\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    described, child = interpreter.program(program, FLAGOS_VENDOR="host").out.splitlines()
    info = json.loads(described)
    assert info.keys() == VendorInfo.__annotations__.keys()
    assert (info["name"], info["serving"], info["torch_device_type"]) == ("host", "host", None)
    assert (info["collective_engine"], info["dlpack_device_type"]) == ("shm", 1)
    assert child == "1", "no device was opened, so a child can use them"


def test_a_vendor_that_cannot_be_used_is_an_error_of_its_first_use(
    interpreter: Interpreter,
) -> None:
    program = "from flagos import _core; print(_core.vendor_info()['name']); _core.init()"
    result = interpreter.program(program, FLAGOS_VENDOR="cuda")
    assert result.out == "host\n"
    assert "ConfigError: FLAGOS_VENDOR: vendor `cuda` cannot be used" in result.err


def test_counting_devices_never_fails(interpreter: Interpreter) -> None:
    program = "import flagos; print(flagos.device_count())"
    result = interpreter.program(program, FLAGOS_VENDOR="nonsense")
    assert (result.out, result.status) == ("0\n", 0), result.err


def test_an_error_of_initialisation_can_be_corrected(interpreter: Interpreter) -> None:
    result = interpreter.program(
        "import os, flagos\n"
        "try: flagos.initialize()\n"
        "except flagos.ConfigError as error: print('FLAGOS_STRICT' in str(error))\n"
        "del os.environ['FLAGOS_STRICT']\n"
        "flagos.initialize(); flagos.initialize(); print(len(flagos.devices()))",
        FLAGOS_STRICT="perhaps",
    )
    assert result.out == "True\n1\n", result.err


def test_the_capsule_holds_the_table() -> None:
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype = ctypes.c_void_p
    get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address = get_pointer(_core.api_capsule(), b"flagos.FlagosApi")
    assert address == get_pointer(_core.api_capsule(), b"flagos.FlagosApi")
    assert address is not None
    size = ctypes.c_size_t.from_address(address).value
    version = ctypes.c_uint32.from_address(address + ctypes.sizeof(ctypes.c_size_t)).value
    # The functions of the header, behind the size and the padded version.
    header = (Path(__file__).parents[2] / "core/include/flagos.h").read_text(encoding="utf-8")
    table = header[header.rindex("typedef struct FlagosApi") :]
    functions = len(re.findall(r"\(\*\w+\)\([^;]*\);", table))
    assert size == (2 + functions) * ctypes.sizeof(ctypes.c_void_p)
    assert version == _core.abi_version
    with pytest.raises(ValueError, match="name"):
        get_pointer(_core.api_capsule(), b"another name")


FORK = """
import os, sys, warnings
warnings.simplefilter("ignore")
import flagos
from flagos import _core
_core.register_impl("t::op", "x", "flagos"), _core.register_impl("t::op", "y", "reference")
{before}
with flagos.route({{"t::op": "reference"}}):
    child = os.fork()
    if child == 0:
        status = 0
        for use in (flagos.initialize, flagos.devices, flagos.plan, lambda: flagos.explain("t::op")):
            try:
                use()
            except flagos.ForkedError as error:
                status += "spawn" in str(error)
if child == 0:
    os._exit(status)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize(("before", "refused"), [("flagos.initialize()", 4), ("", 0)])
def test_a_forked_child_is_refused_only_after_initialisation(
    interpreter: Interpreter, before: str, refused: int
) -> None:
    result = interpreter.program(FORK.format(before=before))
    assert result.out == f"{refused}\n", result.err
