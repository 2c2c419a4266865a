"""Programs that use libnnopbase and libopapi correctly, of which nothing is recorded."""

from __future__ import annotations

import ctypes
import math
import struct

from core.vendors.ascend.simulated.aclnn import (
    BOOL,
    FLOAT,
    HALF,
    INT32,
    INT64,
    NCHW,
    UINT8,
    Aclnn,
    Tensor,
    program,
)
from core.vendors.ascend.simulated.library import GLOBAL

Libraries = Aclnn


def double(value: float) -> ctypes.c_double:
    return ctypes.c_double(value)


def floating(value: float) -> ctypes.c_double:
    """A float in a register of which the rest is part of a NaN, as the calling convention allows."""
    low = struct.unpack("I", struct.pack("f", value))[0]
    return ctypes.c_double(struct.unpack("d", struct.pack("Q", 0x7FF8_DEAD << 32 | low))[0])


def shape_of(acl: Aclnn, tensor: Tensor) -> list[int]:
    """The shape that a tensor has now."""
    dims, count = ctypes.POINTER(ctypes.c_int64)(), ctypes.c_uint64()
    acl.aclGetViewShape(tensor.handle, ctypes.byref(dims), ctypes.byref(count))
    return [dims[dim] for dim in range(count.value)]


@program()
def adding(acl: Aclnn) -> None:
    stream = acl.prepare()
    acl.aclnnInit(None)
    x, y = acl.tensor([1, 2, 3, 4], [2, 2]), acl.tensor([10, 20], [2])
    out = acl.tensor(None, [2, 2])
    alpha = acl.scalar(2)
    acl.do(stream, "aclnnAdd", x, y, alpha, out)
    assert acl.values(out) == [21, 42, 23, 44]
    acl.do(stream, "aclnnInplaceAdd", x, x, alpha)
    assert acl.values(x) == [3, 6, 9, 12]
    assert acl.library.simulated_ascend_calls(b"aclnnAddGetWorkspaceSize") == 1
    assert acl.library.simulated_ascend_calls(b"aclnnAdd") == 1
    assert acl.library.simulated_ascend_operator_tasks(b"aclnnAdd") == 1
    assert acl.library.simulated_ascend_operator_deterministic(b"aclnnAdd") == 0
    acl.aclrtCtxSetSysParamOpt(0, 1)
    acl.do(stream, "aclnnAdd", x, y, alpha, out)
    assert acl.library.simulated_ascend_operator_deterministic(b"aclnnAdd") == 1
    acl.aclDestroyScalar(alpha)
    for tensor in (x, y, out):
        acl.aclDestroyTensor(tensor.handle)
        acl.aclrtFree(tensor.block)
    kinds = ("tensors", "scalars", "executors", "blocks")
    assert [acl.live(kind) for kind in kinds] == [0, 0, 0, 0]
    acl.aclrtDestroyStream(stream)
    acl.aclnnFinalize()
    acl.aclFinalize()


@program()
def views(acl: Aclnn) -> None:
    stream = acl.prepare()
    block = acl.tensor([0, 1, 2, 3, 4, 5], [6]).block
    turned = acl.describe(block, [3, 2], strides=[1, 3], storage=[6])
    out = acl.tensor(None, [3, 2])
    acl.do(stream, "aclnnNeg", turned, out)
    assert acl.values(out) == [0, -3, -1, -4, -2, -5]

    # The odd ones from the even ones of the same memory.
    even = acl.describe(block, [3], strides=[2], storage=[6])
    odd = acl.describe(block, [3], strides=[2], offset=1, storage=[6])
    acl.do(stream, "aclnnNeg", even, odd)
    whole = Tensor(0, block, (6,), FLOAT)
    assert acl.values(whole) == [0, 0, 2, -2, 4, -4]

    # Into a broadcast source, and onto itself.
    one = acl.tensor([7], [1])
    spread = acl.describe(one.block, [3], strides=[0], storage=[1])
    acl.do(stream, "aclnnInplaceCopy", even, spread)
    acl.do(stream, "aclnnNeg", even, even)
    assert acl.values(whole) == [-7, 0, -7, -2, -7, -4]


@program()
def nothing_and_numbers(acl: Aclnn) -> None:
    stream = acl.prepare()
    empty = acl.tensor(None, [0, 3])
    size, executor = acl.plan("aclnnNeg", empty, acl.tensor(None, [0, 3]))
    assert size == 0
    before = acl.library.simulated_ascend_tasks()
    acl.aclnnNeg(None, 0, executor, stream)
    assert acl.library.simulated_ascend_tasks() == before

    # Nothing has a sum.
    total = acl.tensor([5], [])
    acl.do(stream, "aclnnReduceSum", empty, acl.integers([0, 1]), False, FLOAT, total)
    assert acl.values(total) == [0]
    number = acl.tensor([2], [])
    acl.do(stream, "aclnnExp", number, number)
    assert math.isclose(acl.values(number)[0], math.exp(2), rel_tol=1e-6)


@program()
def numbers_by_value(acl: Aclnn) -> None:
    stream = acl.prepare()
    x = acl.tensor([math.nan, math.inf, -math.inf, 1], [4])
    acl.do(stream, "aclnnInplaceNanToNum", x, floating(2), floating(3), floating(-4))
    assert acl.values(x) == [2, 3, -4, 1]

    # Floats and integers are counted apart; of narrow integers the upper bits are anything.
    parameter, gradient = acl.tensor([1], [1]), acl.tensor([1], [1])
    m, v, step = acl.tensor([0], [1]), acl.tensor([0], [1]), acl.tensor([0], [1])
    numbers = [floating(value) for value in (0.5, 0.9, 0.99, 0.0, 1e-8)]
    no = ctypes.c_uint64(0xDEADBEEF_00)
    acl.do(stream, "aclnnApplyAdamWV2", parameter, m, v, None, gradient, step, *numbers, no, no)
    assert math.isclose(acl.values(parameter)[0], 0.5, rel_tol=1e-5)
    assert math.isclose(acl.values(m)[0], 0.1, rel_tol=1e-5)

    x, y, out = acl.tensor([1, 2], [1, 2]), acl.tensor([3, 4], [2, 1]), acl.tensor(None, [1, 1])
    acl.do(stream, "aclnnMm", x, y, out, ctypes.c_uint64(0x1234_5600))
    assert acl.values(out) == [11]


@program()
def numbers_of_dtypes(acl: Aclnn) -> None:
    stream = acl.prepare()
    out = acl.tensor(None, [2], HALF)
    for value, dtype in ((1.5, FLOAT), (1.5, HALF), (-3, INT32), (200, UINT8), (True, BOOL)):
        acl.do(stream, "aclnnInplaceFillScalar", out, acl.scalar(value, dtype))
        assert acl.values(out) == [value, value]

    # The result is promoted as if it were of a tensor of no dimension, and converted.
    x = acl.tensor([1, 2], [2], INT64)
    acl.do(stream, "aclnnMuls", x, acl.scalar(1.5), out)
    assert acl.values(out) == [1.5, 3]
    acl.do(stream, "aclnnCast", out, INT32, acl.tensor(None, [2], INT32))
    less = acl.tensor(None, [2], BOOL)
    acl.do(stream, "aclnnLtScalar", x, acl.scalar(2), less)
    assert acl.values(less) == [True, False]


@program()
def lists(acl: Aclnn) -> None:
    stream = acl.prepare()
    parts = [acl.tensor([1, 2], [2]), acl.tensor([3], [1])]
    one_list = acl.tensors(parts)
    acl.do(stream, "aclnnForeachMulScalarV2", one_list, acl.scalar(2.0, FLOAT), one_list)
    assert [acl.values(part) for part in parts] == [[2, 4], [6]]
    out = acl.tensor(None, [3])
    acl.do(stream, "aclnnCat", one_list, 0, out)
    assert acl.values(out) == [2, 4, 6]

    # An empty tensor among indices leaves a dimension out.
    x = acl.tensor(list(range(6)), [2, 3])
    chosen = acl.tensors([acl.tensor([], [0], INT64), acl.tensor([2, 0], [2], INT64)])
    out = acl.tensor(None, [2, 2])
    acl.do(stream, "aclnnIndex", x, chosen, out)
    assert acl.values(out) == [2, 0, 5, 3]
    assert acl.live("tensor_lists") == 2
    acl.aclDestroyTensorList(one_list)
    acl.aclDestroyTensorList(chosen)
    assert acl.live("tensor_lists") == 0
    assert acl.live("tensors") == 3


@program()
def shapes_that_the_work_sets(acl: Aclnn) -> None:
    stream = acl.prepare()
    x, out = acl.tensor([0, 5, 0, 7], [4]), acl.tensor(None, [4, 1], INT64)
    acl.do(stream, "aclnnNonzero", x, out)
    assert shape_of(acl, out) == [2, 1]
    assert acl.values(out)[:2] == [1, 3]
    mask = acl.tensor([True, False, False, True], [4], BOOL)
    out = acl.tensor(None, [4])
    acl.do(stream, "aclnnMaskedSelect", x, mask, out)
    assert shape_of(acl, out) == [2]
    assert acl.values(out)[:2] == [0, 7]


@program()
def random_numbers(acl: Aclnn) -> None:
    stream = acl.prepare()

    def drawn(seed: int, offset: int) -> list[float]:
        x = acl.tensor(None, [4000])
        acl.do(stream, "aclnnInplaceNormal", x, floating(3), floating(2), seed, offset)
        return acl.values(x)

    first = drawn(1, 0)
    mean = sum(first) / len(first)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in first) / len(first))
    assert abs(mean - 3) < 0.2 and abs(deviation - 2) < 0.2
    assert first == drawn(1, 0)
    assert len({tuple(drawn(1, 0)), tuple(drawn(2, 0)), tuple(drawn(1, 4))}) == 3

    bits = acl.tensor(None, [512], UINT8)
    acl.do(stream, "aclnnDropoutGenMaskV2", acl.integers([4000]), double(0.25), 1, 0, FLOAT, bits)
    out = acl.tensor(None, [4000])
    ones = acl.tensor([1] * 4000, [4000])
    acl.do(stream, "aclnnDropoutDoMask", ones, bits, double(0.25), out)
    values = acl.values(out)
    assert set(values) == {0.0, struct.unpack("f", struct.pack("f", 4 / 3))[0]}
    assert 0.2 < values.count(0.0) / 4000 < 0.3


@program()
def repeatable_executors(acl: Aclnn) -> None:
    stream = acl.prepare()
    x, out = acl.tensor([1, 2], [2]), acl.tensor(None, [2])
    size, executor = acl.plan("aclnnNeg", x, out)
    acl.aclSetAclOpExecutorRepeatable(executor)
    workspace = acl.malloc(size) if size else None
    acl.aclnnNeg(workspace, size, executor, stream)
    acl.aclnnNeg(workspace, size, executor, stream)
    other, result = acl.tensor([5, 6], [2]), acl.tensor(None, [2])
    acl.aclSetInputTensorAddr(executor, 0, x.handle, other.block)
    acl.aclSetOutputTensorAddr(executor, 0, out.handle, result.block)
    acl.aclnnNeg(workspace, size, executor, stream)
    acl.aclrtSynchronizeStream(stream)
    assert acl.values(out) == [-1, -2]
    assert acl.values(result) == [-5, -6]

    # All tensors are counted together, and those of a list one by one.
    acl.aclSetTensorAddr(executor, 1, out.handle, out.block)
    acl.aclnnNeg(workspace, size, executor, stream)
    acl.aclrtSynchronizeStream(stream)
    assert acl.values(out) == [-5, -6]
    assert acl.live("executors") == 1
    acl.aclDestroyAclOpExecutor(executor)
    assert acl.live("executors") == 0

    one_list, whole = acl.tensors([x, other]), acl.tensor(None, [4])
    size, executor = acl.plan("aclnnCat", one_list, 0, whole)
    acl.aclSetAclOpExecutorRepeatable(executor)
    acl.aclSetDynamicInputTensorAddr(executor, 0, 1, one_list, result.block)
    acl.aclSetOutputTensorAddr(executor, 0, whole.handle, whole.block)
    acl.launch("aclnnCat", size, executor, stream)
    acl.aclrtSynchronizeStream(stream)
    assert acl.values(whole) == [5, 6, -5, -6]
    acl.aclDestroyAclOpExecutor(executor)


@program()
def executors_that_cannot_be_kept(acl: Aclnn) -> None:
    acl.prepare()
    x, zero = acl.tensor([1, 2], [2]), acl.integers([0])
    _, executor = acl.plan("aclnnInplaceIndexFillTensor", x, 0, zero, acl.scalar(3.0))
    acl.refused(561000, "aclSetAclOpExecutorRepeatable", executor)
    acl.aclDestroyAclOpExecutor(executor)


@program(WORKSPACE="0")
def graphs(acl: Aclnn) -> None:
    stream = acl.prepare()
    x, one = acl.tensor([1, 2], [2]), acl.scalar(1.0)
    acl.aclmdlRICaptureBegin(stream, GLOBAL)
    size, executor = acl.plan("aclnnInplaceAdds", x, one, one)
    acl.launch("aclnnInplaceAdds", size, executor, stream)
    model = acl.new_last("aclmdlRICaptureEnd", stream)
    assert acl.values(x) == [1, 2]
    for _ in range(3):
        acl.aclmdlRIExecuteAsync(model, stream)
    acl.aclrtSynchronizeStream(stream)
    assert acl.values(x) == [4, 5]
    acl.aclmdlRIDestroy(model)


@program(FAULT="aclnnNegGetWorkspaceSize=2:561000,aclnnNeg=2:507015")
def faults(acl: Aclnn) -> None:
    stream = acl.prepare()
    x, out = acl.tensor([1], [1]), acl.tensor(None, [1])
    acl.do(stream, "aclnnNeg", x, out)
    acl.refuse(561000, "aclnnNeg", x, out)
    size, executor = acl.plan("aclnnNeg", x, out)
    acl.aclnnNeg(acl.malloc(size) if size else None, size, executor, stream)
    acl.refused(507015, "aclrtSynchronizeStream", stream)


@program(HIDE="aclnnGelu,aclSetRawTensorAddr")
def hidden_functions(acl: Aclnn) -> None:
    assert not hasattr(acl.library, "aclnnGelu")
    assert not hasattr(acl.library, "aclnnGeluGetWorkspaceSize")
    assert not hasattr(acl.library, "aclSetRawTensorAddr")
    assert hasattr(acl.library, "aclnnGeluV2")
    assert hasattr(acl.library, "aclnnFusedAdamw")
    assert acl.library.simulated_ascend_operator(0) is not None


@program(VERSION="8.1")
def functions_of_an_old_version(acl: Aclnn) -> None:
    assert not hasattr(acl.library, "aclnnFusedAdamw")
    assert not hasattr(acl.library, "aclnnSquareGetWorkspaceSize")
    assert hasattr(acl.library, "aclnnApplyAdamWV2")


@program(COMPUTE="0")
def without_computing(acl: Aclnn) -> None:
    stream = acl.prepare()
    x = acl.describe(None, [3])
    before = acl.library.simulated_ascend_tasks()
    size, executor = acl.plan("aclnnNeg", x, x)
    acl.aclnnNeg(None, size, executor, stream)
    assert acl.library.simulated_ascend_tasks() == before
    assert acl.library.simulated_ascend_calls(b"aclnnNeg") == 1
    assert acl.live("executors") == 0
    _, executor = acl.plan("aclnnNeg", x, x)
    acl.aclSetAclOpExecutorRepeatable(executor)
    acl.aclSetInputTensorAddr(executor, 0, x, 64)
    acl.aclnnNeg(None, 0, executor, stream)
    acl.aclDestroyAclOpExecutor(executor)


@program(DELAY_US="20000")
def work_that_the_end_of_the_process_cuts_off(acl: Aclnn) -> None:
    stream = acl.prepare()
    x, one = acl.tensor([1, 2], [2]), acl.scalar(1.0)
    for _ in range(10):
        size, executor = acl.plan("aclnnInplaceAdds", x, one, one)
        acl.aclnnInplaceAdds(acl.malloc(size) if size else None, size, executor, stream)


@program()
def every_operator_is_there_in_both_phases(acl: Aclnn) -> None:
    names: list[str] = []
    while name := acl.library.simulated_ascend_operator(len(names)):
        names.append(name.decode())
    assert len(names) == len(set(names)) >= 600
    assert all(hasattr(acl.library, name) for name in names)
    assert all(hasattr(acl.library, f"{name}GetWorkspaceSize") for name in names)


@program(DELAY_US="300")
def networks(acl: Aclnn) -> None:
    stream = acl.prepare()
    image = acl.tensor(list(range(16)), [1, 1, 4, 4], format=NCHW)
    weight = acl.tensor([1, 0, 0, 1], [1, 1, 2, 2], format=NCHW)
    out = acl.tensor(None, [1, 1, 3, 3], format=NCHW)
    one, none = acl.integers([1, 1]), acl.integers([0, 0])
    acl.do(stream, "aclnnConvolution", image, weight, None, one, none, one, False, none, 1, out, 0)
    assert acl.values(out) == [5, 7, 9, 13, 15, 17, 21, 23, 25]
    pooled = acl.tensor(None, [1, 1, 1, 1], format=NCHW)
    places = acl.tensor(None, [1, 1, 1, 1], INT32, format=NCHW)
    three = acl.integers([3, 3])
    acl.do(stream, "aclnnMaxPool2dWithIndices", out, three, three, none, one, False, pooled, places)
    assert (acl.values(pooled), acl.values(places)) == ([25], [8])

    # One head of two positions, of which the first sees itself alone.
    q, k = acl.tensor([0, 0], [1, 1, 2, 1]), acl.tensor([0, 0], [1, 1, 2, 1])
    v, out = acl.tensor([2, 4], [1, 1, 2, 1]), acl.tensor(None, [1, 1, 2, 1])
    hidden = acl.tensor([False, True, False, False], [2, 2], BOOL)
    most, total = acl.tensor(None, [1, 1, 2, 8]), acl.tensor(None, [1, 1, 2, 8])
    numbers = (double(1), double(1), 2147483647, 2147483647, 1, "BNSD", 0, 0)
    arguments = (q, k, v, None, None, None, hidden, None, *numbers, most, total, None, out)
    acl.do(stream, "aclnnFlashAttentionScore", *arguments)
    assert acl.values(out) == [2, 3]
    assert (acl.values(most), acl.values(total)) == ([0] * 16, [1] * 8 + [2] * 8)
