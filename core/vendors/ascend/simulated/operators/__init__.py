"""What each operator of the simulated libopapi takes and computes.

The modules of this package call `operator` for each: a program in the language of program.h, what all of its
tensors may be, and what single parameters may be instead. A description is words: dtypes and groups of them
(`-f64` takes one away again), a rank or a range of ranks, and flags (`-image` takes one away). The types and the
names of parameters are those of prototypes.txt.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

GROUPS = (
    "elementwise",
    "reduction",
    "matrix",
    "indexing",
    "foreach",
    "random",
    "layers",
    "further",
)

DTYPES = {
    "f32": 0,
    "f16": 1,
    "i8": 2,
    "i32": 3,
    "u8": 4,
    "i16": 6,
    "u16": 7,
    "u32": 8,
    "i64": 9,
    "u64": 10,
    "f64": 11,
    "bool": 12,
    "c64": 16,
    "c128": 17,
    "bf16": 27,
}

SETS = {
    "halves": "f16 bf16",
    "floats": "f32 f16 bf16",
    "reals": "f32 f16 bf16 f64",
    "ints": "i8 i16 i32 i64 u8",
    "unsigned": "u16 u32 u64",
    "complex": "c64 c128",
    "numbers": "f32 f16 bf16 f64 i8 i16 i32 i64 u8",
    "all": "f32 f16 bf16 f64 i8 i16 i32 i64 u8 bool c64 c128",
    "any": " ".join(DTYPES),
    "index": "i32 i64",
}

FLAGS = {
    "optional": "kOptional",
    "contiguous": "kContiguous",
    "image": "kImage",
    "convertible": "kConvertible",
    "dynamic": "kDynamic",
    "shape": "kShape",
    "absent": "kAbsent",
    "short": "kShort",
    "of_scalar": "kOfScalar",
    "of_scalars": "kOfScalars",
    "of_tensor": "kOfTensor",
    "same": "kSame",
}

TYPES = {
    "aclTensor*": ("kTensor", "handle"),
    "aclTensorList*": ("kTensorList", "handle"),
    "aclScalar*": ("kScalar", "handle"),
    "aclScalarList*": ("kScalarList", "handle"),
    "aclIntArray*": ("kIntArray", "handle"),
    "aclFloatArray*": ("kFloatArray", "handle"),
    "aclBoolArray*": ("kBoolArray", "handle"),
    "char*": ("kText", "handle"),
    "int64_t": ("kInteger", "integer"),
    "uint64_t": ("kInteger", "integer"),
    "int32_t": ("kInteger", "integer"),
    "uint32_t": ("kInteger", "integer"),
    "int8_t": ("kInteger", "integer"),
    "int": ("kInteger", "integer"),
    "bool": ("kBool", "integer"),
    "aclDataType": ("kDtype", "integer"),
    "double": ("kReal", "real"),
    "float": ("kReal", "real"),
}


@dataclass
class Parameter:
    """A parameter of a prototype, and what it may be."""

    name: str
    ctype: str
    flags: set[str] = field(default_factory=set)
    dtypes: set[str] = field(default_factory=lambda: set(DTYPES))
    ranks: tuple[int, int] = (0, 8)


@dataclass
class Operator:
    """A function of libopapi, by its name without `aclnn`."""

    name: str
    parameters: list[Parameter]
    program: str
    can_repeat: bool
    group: str


# They copy what they were given, or reorder it on the device, so that their executors cannot be kept.
UNREPEATABLE = {"AvgPool2d", "AvgPool2dBackward", "IndexFillTensor", "InplaceIndexFillTensor"}

OPERATORS: dict[str, Operator] = {}
_loading: list[str] = []


@cache
def prototypes() -> dict[str, list[tuple[str, str]]]:
    """The parameters of phase 1 by the function's name without `aclnn`: types without `const`, and names."""
    all_: dict[str, list[tuple[str, str]]] = {}
    for line in (Path(__file__).parent / "prototypes.txt").read_text().splitlines():
        name, _, rest = line.partition("(")
        parameters = []
        for each in rest.removesuffix(" newer").rstrip(")").split(","):
            ctype, _, word = each.strip().rpartition(" ")
            parameters.append((ctype.replace("const ", "").strip(), word))
        all_[name.removeprefix("aclnn")] = parameters
    return all_


def newer() -> list[str]:
    """The functions that came after CANN 8.1."""
    lines = (Path(__file__).parent / "prototypes.txt").read_text().splitlines()
    return [line.partition("(")[0] for line in lines if line.endswith(" newer")]


def _describe(parameter: Parameter, words: str) -> None:
    dtypes: set[str] = set()
    for word in words.split():
        if re.fullmatch(r"\d(-\d)?", word):
            first, _, last = word.partition("-")
            parameter.ranks = int(first), int(last or first)
        elif word in FLAGS:
            parameter.flags.add(word)
        elif word[1:] in FLAGS:
            parameter.flags.discard(word[1:])
        elif word.startswith("-"):
            dtypes -= set(SETS.get(word[1:], word[1:]).split())
        else:
            dtypes |= set(SETS.get(word, word).split())
    unknown = dtypes - set(DTYPES)
    assert not unknown, f"unknown words: {unknown}"
    if dtypes:
        parameter.dtypes = dtypes


# Names inside these are not read: only what describes them is.
_DESCRIPTIONS = re.compile(r"@(dtype|sizes|size|rank|numel|dims)\((\w+)")


def names_of(program: str) -> tuple[set[str], set[str]]:
    """The names that a program reads, and those that it writes."""
    reads: set[str] = set()
    writes: set[str] = set()
    for statement in program.split(";"):
        targets, _, value = statement.partition("=")
        value = re.sub(r"'[^']*'", "", value)
        described = _DESCRIPTIONS.sub(r"@\1(", value)
        for match in re.finditer(r"@?[A-Za-z_][\w.]*", described):
            after = described[match.end() :].lstrip()
            is_keyword = after.startswith("=") and not after.startswith("==")
            if not after.startswith("(") and not match.group().startswith("@") and not is_keyword:
                reads.add(match.group())
        writes |= {name.strip() for name in targets.split(",")}
    return reads, writes


def operator(name: str, program: str, tensors: str = "all", /, **parameters: str) -> None:
    """Adds an operator. `{0}`, `{1}` … in the program are the prototype's parameters."""
    assert name not in OPERATORS, name
    prototype = prototypes()[name]
    program = " ".join(program.format(*(word for _, word in prototype)).split())
    reads, writes = names_of(program)
    unknown = set(parameters) - {word for _, word in prototype}
    assert not unknown, f"{name} has no {unknown}"
    described = []
    for ctype, word in prototype:
        parameter = Parameter(word, ctype)
        if ctype in ("aclTensor*", "aclTensorList*"):
            _describe(parameter, tensors)
            if word in reads or word not in writes:
                parameter.flags.add("reads")
            if word in writes:
                parameter.flags.add("writes")
        if word in parameters:
            _describe(parameter, parameters[word])
        described.append(parameter)
    OPERATORS[name] = Operator(name, described, program, name not in UNREPEATABLE, _loading[-1])


def load() -> dict[str, Operator]:
    """All operators."""
    for group in GROUPS:
        _loading.append(group)
        importlib.import_module(f"{__name__}.{group}")
    return OPERATORS
