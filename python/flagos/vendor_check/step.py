"""The steps of the checklist, and what each found."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Status(Enum):
    """The outcome of a step."""

    PASS = "pass"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True)
class Step:
    """One step of the checklist."""

    name: str
    #: What a vendor that passes has shown.
    proves: str
    #: What to do about a failure that names no remedy of its own.
    remedy: str
    #: The functions of ``flagos_vendor.h`` that the step is about.
    functions: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class Finding:
    """The result of a step. A failure has a ``fix``."""

    step: Step
    status: Status
    detail: str
    fix: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The finding as plain data, for ``--json``."""
        return {
            "name": self.step.name,
            "status": self.status.value,
            "detail": self.detail,
            "fix": self.fix,
            "proves": self.step.proves,
            "functions": list(self.step.functions),
        }


#: The steps of taking a library, in the order in which the core takes it.
TAKING = (
    Step(
        "manifest",
        "the manifest is whole, no stranger can change it, and the library is for this flagos",
        "correct the manifest",
    ),
    Step(
        "file",
        "the file is a shared library for this machine, which no stranger can replace",
        "name the library that you built for this machine",
    ),
    Step(
        "load",
        "the library is opened, with all the libraries that it needs",
        "run `ldd` over it, and install or link what is missing",
    ),
    Step(
        "symbols",
        "it exports flagos_vendor, and flagos_kernels if it has kernels",
        "define the function as flagos_vendor.h declares it, and do not hide it",
        ("flagos_vendor", "flagos_kernels"),
    ),
    Step(
        "version",
        "library and flagos take the same version of flagos_vendor.h",
        "compile the library with the flagos_vendor.h of this flagos",
        ("flagos_vendor",),
    ),
    Step(
        "table",
        "the table has every required function, and nothing in places that are reserved",
        "fill the table in: flagos_vendor.h documents each function",
    ),
    Step(
        "description",
        "the description has a valid name, a version and a way of serving, as in the manifest",
        "correct the description: flagos_vendor.h documents each member",
    ),
    Step(
        "kernels",
        "the table of kernels is whole, and `find` knows every name that it lists",
        "correct the table: flagos_kernels.h documents each member",
        ("flagos_kernels", "find"),
    ),
)

#: The steps of opening the vendor.
OPENING = (
    Step(
        "probe",
        "the vendor counts its devices without initialising anything",
        "run this on a machine with the device and its driver",
        ("probe",),
    ),
    Step(
        "open",
        "the vendor opens",
        "read what the vendor's own log says",
        ("open", "device_count"),
    ),
    Step(
        "devices",
        "every device reports its properties and its memory",
        "read what the vendor's own log says",
        ("device_properties", "device_memory"),
    ),
)

#: The step before the conformance checks.
DECLARATIONS = Step(
    "declarations",
    "what the library takes for granted of the one beneath it, whose header nobody publishes, is true here",
    "please report it, with the version of the library beneath: the vendor relies on it",
)

#: The step after the conformance checks.
OPERATORS = Step(
    "operators",
    "which of torch's operators the library has kernels for; the others run on the CPU, counted",
    "correct `find`: it returns UNSUPPORTED for an operator without a kernel",
    ("find",),
)
