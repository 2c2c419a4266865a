"""Programs that each misuse libnnopbase or libopapi, with the line that it is recorded as."""

from __future__ import annotations

import ctypes

from core.vendors.ascend.simulated.aclnn import (
    DOUBLE,
    FLOAT,
    FRACTAL_NZ,
    INT32,
    INT64,
    NCHW,
    ND,
    NHWC,
    Aclnn,
    Tensor,
    program,
)

Libraries = Aclnn


def planned(acl: Aclnn, name: str = "aclnnNeg", *, workspace: bool = True) -> tuple[int, int]:
    """A planned operator that needs a workspace, or none: the size and the executor."""
    x, out = acl.tensor([1.0, 2.0], [2]), acl.tensor(None, [2])
    while True:
        size, executor = acl.plan(name, x, out)
        if bool(size) == workspace:
            return size, executor
        acl.aclDestroyAclOpExecutor(executor)


# What describes arguments.


@program("aclCreateTensor: more than 8 dimensions (refused: 161002)")
def nine_dimensions(acl: Aclnn) -> None:
    acl.prepare()
    assert acl.describe(acl.malloc(), [1] * 9) == 0


@program("aclCreateTensor: a size or a stride is negative (refused: 161002)")
def negative_stride(acl: Aclnn) -> None:
    acl.prepare()
    assert acl.describe(acl.malloc(), [2], strides=[-1], offset=1) == 0


@program("aclDestroyTensor: the tensor was destroyed (not noticed by the vendor)")
def tensor_destroyed_twice(acl: Aclnn) -> None:
    acl.prepare()
    tensor = acl.describe(acl.malloc(), [2])
    acl.aclDestroyTensor(tensor)
    acl.aclDestroyTensor(tensor)


@program("aclDestroyScalar: a tensor, not a scalar (not noticed by the vendor)")
def destroyed_as_another_kind(acl: Aclnn) -> None:
    acl.prepare()
    acl.aclDestroyScalar(acl.describe(acl.malloc(), [2]))


@program("aclDestroyTensor: the tensor was destroyed (not noticed by the vendor)")
def element_destroyed_after_its_list(acl: Aclnn) -> None:
    acl.prepare()
    x = acl.tensor(None, [2])
    acl.aclDestroyTensorList(acl.tensors([x]))
    acl.aclDestroyTensor(x.handle)


@program(
    "aclFinalize: leak: 1 blocks (not noticed by the vendor)",
    "aclFinalize: leak: 2 tensors (not noticed by the vendor)",
    "aclFinalize: leak: 1 scalars (not noticed by the vendor)",
    "aclFinalize: leak: 1 int_arrays (not noticed by the vendor)",
    "aclFinalize: leak: 1 tensor_lists (not noticed by the vendor)",
)
def leaks(acl: Aclnn) -> None:
    acl.start()
    x = acl.tensor(None, [2])
    acl.tensors([x, Tensor(acl.describe(x.block, [2]), x.block, (2,), FLOAT)])
    acl.scalar(1.0)
    acl.integers([1])
    acl.aclFinalize()


# Arguments of phase 1.


@program("aclnnNegGetWorkspaceSize: the thread has no context (refused: 107002)")
def no_context(acl: Aclnn) -> None:
    acl.aclInit(None)
    acl.refuse(107002, "aclnnNeg", None, None)


@program("aclnnNegGetWorkspaceSize: out is NULL (refused: 161001)")
def argument_that_is_null(acl: Aclnn) -> None:
    acl.prepare()
    acl.refuse(161001, "aclnnNeg", acl.tensor([1.0], [1]), None)


@program("aclnnNegGetWorkspaceSize: self: the tensor was destroyed (not noticed by the vendor)")
def argument_that_was_destroyed(acl: Aclnn) -> None:
    acl.prepare()
    x, out = acl.tensor([1.0], [1]), acl.tensor(None, [1])
    acl.aclDestroyTensor(x.handle)
    size, executor = ctypes.c_uint64(), ctypes.c_void_p()
    out_arguments = (ctypes.byref(size), ctypes.byref(executor))
    assert acl.code("aclnnNegGetWorkspaceSize", x.handle, out.handle, *out_arguments) == 161002


@program("aclnnAddsGetWorkspaceSize: other: a tensor, not a scalar (not noticed by the vendor)")
def argument_of_another_kind(acl: Aclnn) -> None:
    acl.prepare()
    x = acl.tensor([1.0], [1])
    size, executor = ctypes.c_uint64(), ctypes.c_void_p()
    arguments = (x.handle, x.handle, acl.scalar(1.0), acl.tensor(None, [1]).handle)
    code = acl.code(
        "aclnnAddsGetWorkspaceSize", *arguments, ctypes.byref(size), ctypes.byref(executor)
    )
    assert code == 161002


@program("aclnnReluGetWorkspaceSize: self cannot be DOUBLE (refused: 161002)")
def dtype_that_an_operator_does_not_take(acl: Aclnn) -> None:
    acl.prepare()
    acl.refuse(161002, "aclnnRelu", acl.tensor([1.0], [1], DOUBLE), acl.tensor(None, [1], DOUBLE))


@program("aclnnReluGetWorkspaceSize: self has an unknown dtype: 99 (refused: 161002)")
def unknown_dtype(acl: Aclnn) -> None:
    acl.prepare()
    unknown = acl.describe(acl.malloc(), [1], 99)
    acl.refuse(161002, "aclnnRelu", unknown, acl.tensor(None, [1]))


@program("aclnnMmGetWorkspaceSize: mat2 cannot have 1 dimensions (refused: 161002)")
def rank_that_an_operator_does_not_take(acl: Aclnn) -> None:
    acl.prepare()
    a, b, out = acl.tensor(None, [2, 2]), acl.tensor(None, [2]), acl.tensor(None, [2])
    acl.refuse(161002, "aclnnMm", a, b, out, 0)


@program("aclnnReluGetWorkspaceSize: self has a private format: 29 (refused: 161002)")
def private_format(acl: Aclnn) -> None:
    acl.prepare()
    x = acl.tensor(None, [2, 2], format=FRACTAL_NZ)
    acl.refuse(161002, "aclnnRelu", x, acl.tensor(None, [2, 2]))


def adaptive_pool(acl: Aclnn, format: int) -> None:
    acl.prepare()
    x = acl.tensor(None, [1, 2, 4, 4], format=format)
    out = acl.tensor(None, [1, 2, 1, 1], format=NCHW)
    acl.refuse(161002, "aclnnAdaptiveAvgPool2d", x, acl.integers([1, 1]), out)


@program(
    "aclnnAdaptiveAvgPool2dGetWorkspaceSize: self needs a format that names its dimensions (refused: 161002)"
)
def format_without_names(acl: Aclnn) -> None:
    adaptive_pool(acl, ND)


@program(
    "aclnnAdaptiveAvgPool2dGetWorkspaceSize: self cannot be NHWC on this chip (refused: 161002)"
)
def format_of_another_chip(acl: Aclnn) -> None:
    adaptive_pool(acl, NHWC)


@program("aclnnSwiGluGetWorkspaceSize: x must be contiguous (refused: 161002)")
def strides_that_an_operator_does_not_take(acl: Aclnn) -> None:
    acl.prepare()
    x = acl.tensor(None, [4, 2], strides=[1, 4], storage=[8])
    acl.refuse(161002, "aclnnSwiGlu", x, 1, acl.tensor(None, [4, 1]))


@program("aclnnNegGetWorkspaceSize: out is [3], the result [2] (refused: 161002)")
def shape_of_the_result(acl: Aclnn) -> None:
    acl.prepare()
    acl.refuse(161002, "aclnnNeg", acl.tensor(None, [2]), acl.tensor(None, [3]))


@program("aclnnAddGetWorkspaceSize: out is INT32, the result Float (refused: 161002)")
def dtype_of_the_result(acl: Aclnn) -> None:
    acl.prepare()
    x, out = acl.tensor([1.0], [1]), acl.tensor(None, [1], INT32)
    acl.refuse(161002, "aclnnAdd", x, x, acl.scalar(1), out)


@program("aclnnMaxPool2dWithIndicesGetWorkspaceSize: indices cannot be INT64 (refused: 161002)")
def indices_of_the_width_of_torch(acl: Aclnn) -> None:
    acl.prepare()
    x, two = acl.tensor(None, [1, 2, 2], format=NCHW), acl.integers([2, 2])
    out, indices = acl.tensor(None, [1, 1, 1]), acl.tensor(None, [1, 1, 1], INT64)
    rest = (acl.integers([0, 0]), acl.integers([1, 1]), False, out, indices)
    acl.refuse(161002, "aclnnMaxPool2dWithIndices", x, two, two, *rest)


@program(
    "aclnnReduceSumGetWorkspaceSize: keepDims is neither true nor false: 2 (not noticed by the vendor)"
)
def bool_that_is_neither(acl: Aclnn) -> None:
    acl.prepare()
    x, out = acl.tensor([1.0, 2.0], [2]), acl.tensor(None, [1])
    _, executor = acl.plan("aclnnReduceSum", x, acl.integers([0]), 2, FLOAT, out)
    acl.aclDestroyAclOpExecutor(executor)


@program("aclnnForeachSqrtGetWorkspaceSize: x has more than 50 tensors: 51 (refused: 161002)")
def list_that_is_too_long(acl: Aclnn) -> None:
    acl.prepare()
    lists = [acl.tensors([acl.tensor(None, [1]) for _ in range(51)]) for _ in range(2)]
    acl.refuse(161002, "aclnnForeachSqrt", *lists)


@program(
    "aclnnForeachMulScalarV2GetWorkspaceSize: scalar cannot be FLOAT for tensors of FLOAT16 (refused: 161002)"
)
def scalar_of_another_dtype_than_the_list(acl: Aclnn) -> None:
    acl.prepare()
    lists = [acl.tensors([acl.tensor(None, [1], 1)]) for _ in range(2)]
    acl.refuse(161002, "aclnnForeachMulScalarV2", lists[0], acl.scalar(2.0, FLOAT), lists[1])


# Memory of arguments.


@program("aclnnNegGetWorkspaceSize: self has elements and no memory (refused: 161001)")
def no_memory(acl: Aclnn) -> None:
    acl.prepare()
    acl.refuse(161001, "aclnnNeg", acl.describe(None, [2]), acl.tensor(None, [2]))


@program("aclnnNegGetWorkspaceSize: self ends 4 bytes beyond its storage of 8 (refused: 161002)")
def view_beyond_its_storage(acl: Aclnn) -> None:
    acl.prepare()
    x = acl.describe(acl.malloc(), [2], offset=1, storage=[2])
    acl.refuse(161002, "aclnnNeg", x, acl.tensor(None, [2]))


def neg_of(acl: Aclnn, address: int, count: int = 2) -> None:
    size, executor = ctypes.c_uint64(), ctypes.c_void_p()
    x, out = acl.describe(address, [count]), acl.tensor(None, [count]).handle
    outs = (ctypes.byref(size), ctypes.byref(executor))
    code = acl.code("aclnnNegGetWorkspaceSize", x, out, *outs)
    assert code == 161002


@program(
    "aclnnNegGetWorkspaceSize: self has a storage 16 bytes beyond the end of its block (not noticed by the vendor)"
)
def storage_beyond_its_block(acl: Aclnn) -> None:
    acl.prepare()
    neg_of(acl, acl.malloc(64), 20)


@program("aclnnNegGetWorkspaceSize: self is memory of the host (not noticed by the vendor)")
def memory_of_the_host(acl: Aclnn) -> None:
    acl.prepare()
    neg_of(acl, acl.pinned())


@program(
    "aclnnNegGetWorkspaceSize: self is not in memory of a device that is allocated (not noticed by the vendor)"
)
def freed_memory(acl: Aclnn) -> None:
    acl.prepare()
    block = acl.malloc()
    acl.aclrtFree(block)
    neg_of(acl, block)


@program("aclnnNegGetWorkspaceSize: self is not aligned to 32 bytes (not noticed by the vendor)")
def memory_that_is_not_aligned(acl: Aclnn) -> None:
    stream = acl.prepare()
    x = acl.describe(acl.malloc() + 4, [2])
    acl.do(stream, "aclnnNeg", x, acl.tensor(None, [2]))


@program("aclnnNegGetWorkspaceSize: out and self overlap in part (not noticed by the vendor)")
def results_over_arguments(acl: Aclnn) -> None:
    acl.prepare()
    block = acl.malloc()
    size, executor = ctypes.c_uint64(), ctypes.c_void_p()
    x, out = acl.describe(block, [4], storage=[8]), acl.describe(block, [4], offset=1, storage=[8])
    outs = (ctypes.byref(size), ctypes.byref(executor))
    assert acl.code("aclnnNegGetWorkspaceSize", x, out, *outs) == 161002


@program("aclnnNegGetWorkspaceSize: out is written and overlaps itself (refused: 161002)")
def result_over_itself(acl: Aclnn) -> None:
    acl.prepare()
    out = acl.describe(acl.malloc(), [4], strides=[0], storage=[1])
    acl.refuse(161002, "aclnnNeg", acl.tensor(None, [4]), out)


@program(
    "aclnnAminmaxAllGetWorkspaceSize: minOut and maxOut overlap, and are both results (not noticed by the vendor)"
)
def two_results_in_one_place(acl: Aclnn) -> None:
    acl.prepare()
    out = acl.tensor(None, [])
    size, executor = ctypes.c_uint64(), ctypes.c_void_p()
    arguments = (acl.tensor(None, [4]).handle, out.handle, out.handle)
    outs = (ctypes.byref(size), ctypes.byref(executor))
    assert acl.code("aclnnAminmaxAllGetWorkspaceSize", *arguments, *outs) == 161002


# Executors and workspaces.


@program("aclFinalize: leak: 1 executors (not noticed by the vendor)")
def executor_that_is_lost(acl: Aclnn) -> None:
    acl.start()
    handles = [acl.describe(None, [0]) for _ in range(2)]
    acl.plan("aclnnNeg", *handles)
    for handle in handles:
        acl.aclDestroyTensor(handle)
    acl.aclFinalize()


@program("aclnnNeg: the executor was destroyed (not noticed by the vendor)")
def executor_used_twice(acl: Aclnn) -> None:
    stream = acl.prepare()
    size, executor = planned(acl, workspace=False)
    acl.launch("aclnnNeg", size, executor, stream)
    assert acl.code("aclnnNeg", None, 0, executor, stream) == 161002


@program("aclnnAbs: the executor belongs to aclnnNeg (not noticed by the vendor)")
def executor_of_another_operator(acl: Aclnn) -> None:
    stream = acl.prepare()
    size, executor = planned(acl, workspace=False)
    assert acl.code("aclnnAbs", None, size, executor, stream) == 161002
    acl.aclDestroyAclOpExecutor(executor)


@program("aclnnNeg: the workspace is NULL (refused: 161001)")
def no_workspace(acl: Aclnn) -> None:
    stream = acl.prepare()
    size, executor = planned(acl)
    acl.refused(161001, "aclnnNeg", None, size, executor, stream)
    assert acl.live("executors") == 0


@program(
    "aclnnNeg: a workspace of 1 bytes where 8192 are needed (not noticed by the vendor)",
    WORKSPACE="3",
)
def workspace_that_is_too_small(acl: Aclnn) -> None:
    stream = acl.prepare()
    size, executor = planned(acl)
    while size != 8192:
        acl.aclDestroyAclOpExecutor(executor)
        size, executor = planned(acl)
    assert acl.code("aclnnNeg", acl.malloc(), 1, executor, stream) == 161002


@program("aclnnNeg: aclnnNeg uses memory that is not allocated (refused: 107000)")
def workspace_that_was_freed(acl: Aclnn) -> None:
    stream = acl.prepare()
    size, executor = planned(acl)
    workspace = acl.malloc(size)
    acl.aclrtFree(workspace)
    acl.refused(107000, "aclnnNeg", workspace, size, executor, stream)


@program(
    "aclrtFree: the block is used by work that has not run (not noticed by the vendor)",
    "simulated_ascend_address: a kernel uses memory that is not allocated (not noticed by the vendor)",
)
def workspace_freed_too_early(acl: Aclnn) -> None:
    stream = acl.prepare()
    size, executor = planned(acl)
    workspace = acl.malloc(size)
    with acl.held(stream):
        acl.aclnnNeg(workspace, size, executor, stream)
        acl.aclrtFree(workspace)
    acl.refused(507015, "aclrtSynchronizeStream", stream)


@program("aclnnNeg: self: the tensor was destroyed before phase 2 (not noticed by the vendor)")
def argument_destroyed_between_the_phases(acl: Aclnn) -> None:
    stream = acl.prepare()
    x, out = acl.tensor([1.0], [1]), acl.tensor(None, [1])
    size, executor = acl.plan("aclnnNeg", x, out)
    acl.aclDestroyTensor(x.handle)
    acl.launch("aclnnNeg", size, executor, stream)


@program("aclnnNeg: self was moved between the phases (not noticed by the vendor)")
def argument_moved_between_the_phases(acl: Aclnn) -> None:
    stream = acl.prepare()
    x, out = acl.tensor([1.0], [1]), acl.tensor(None, [1])
    size, executor = acl.plan("aclnnNeg", x, out)
    acl.aclSetRawTensorAddr(x.handle, acl.malloc())
    acl.launch("aclnnNeg", size, executor, stream)


@program("aclGetViewShape: the work that sets the shape has not run (not noticed by the vendor)")
def shape_that_is_not_known_yet(acl: Aclnn) -> None:
    stream = acl.prepare()
    x, out = acl.tensor([1.0, 0.0], [2]), acl.tensor(None, [2, 1], INT64)
    size, executor = acl.plan("aclnnNonzero", x, out)
    workspace = acl.malloc(size) if size else None
    dims, count = ctypes.c_void_p(), ctypes.c_uint64()
    with acl.held(stream):
        acl.aclnnNonzero(workspace, size, executor, stream)
        acl.aclGetViewShape(out.handle, ctypes.byref(dims), ctypes.byref(count))
    acl.aclrtSynchronizeStream(stream)


@program("aclnnIndexSelect: index out of range in self (not noticed by the vendor)")
def index_out_of_range(acl: Aclnn) -> None:
    stream = acl.prepare()
    x, index = acl.tensor([1.0, 2.0], [2]), acl.tensor([5], [1], INT64)
    size, executor = acl.plan("aclnnIndexSelect", x, 0, index, acl.tensor(None, [1]))
    acl.aclnnIndexSelect(acl.malloc(size) if size else None, size, executor, stream)
    acl.refused(507015, "aclrtSynchronizeStream", stream)


# Repeatable executors.


@program(
    "aclSetAclOpExecutorRepeatable: not called right after phase 1 (not noticed by the vendor)"
)
def repeatable_too_late(acl: Aclnn) -> None:
    acl.prepare()
    _, executor = planned(acl)
    _, another = planned(acl)
    acl.aclSetAclOpExecutorRepeatable(executor)
    acl.aclDestroyAclOpExecutor(executor)
    acl.aclDestroyAclOpExecutor(another)


@program("aclSetInputTensorAddr: the executor is not repeatable (not noticed by the vendor)")
def address_of_an_ordinary_executor(acl: Aclnn) -> None:
    acl.prepare()
    x, out = acl.tensor([1.0], [1]), acl.tensor(None, [1])
    _, executor = acl.plan("aclnnNeg", x, out)
    acl.aclSetInputTensorAddr(executor, 0, x.handle, x.block)
    acl.aclDestroyAclOpExecutor(executor)


def repeatable(acl: Aclnn, *tensors: Tensor) -> tuple[int, int]:
    size, executor = acl.plan("aclnnNeg", *tensors)
    acl.aclSetAclOpExecutorRepeatable(executor)
    return size, executor


@program("aclSetInputTensorAddr: there is no index 1 among 1 (refused: 161002)")
def address_of_no_input(acl: Aclnn) -> None:
    acl.prepare()
    x, out = acl.tensor([1.0], [1]), acl.tensor(None, [1])
    _, executor = repeatable(acl, x, out)
    acl.refused(161002, "aclSetInputTensorAddr", executor, 1, out.handle, out.block)
    acl.aclDestroyAclOpExecutor(executor)


@program("aclSetTensorAddr: index 0 is another tensor (not noticed by the vendor)")
def address_of_another_tensor(acl: Aclnn) -> None:
    acl.prepare()
    x, out = acl.tensor([1.0], [1]), acl.tensor(None, [1])
    _, executor = repeatable(acl, x, out)
    acl.aclSetTensorAddr(executor, 0, out.handle, acl.malloc())
    acl.aclDestroyAclOpExecutor(executor)


@program("aclnnNeg: self: the tensor was destroyed before phase 2 (not noticed by the vendor)")
def argument_of_a_repeatable_executor_destroyed(acl: Aclnn) -> None:
    stream = acl.prepare()
    x, out = acl.tensor([1.0], [1]), acl.tensor(None, [1])
    size, executor = repeatable(acl, x, out)
    workspace = acl.malloc(size) if size else None
    acl.aclnnNeg(workspace, size, executor, stream)
    acl.aclDestroyTensor(x.handle)
    assert acl.code("aclnnNeg", workspace, size, executor, stream) == 161002
    acl.aclDestroyAclOpExecutor(executor)


@program("exit: leak: 1 executors (not noticed by the vendor)", LEAKS="exit")
def repeatable_executor_that_is_lost(acl: Aclnn) -> None:
    acl.start()
    handles = [acl.describe(None, [0]) for _ in range(2)]
    _, executor = acl.plan("aclnnNeg", *handles)
    acl.aclSetAclOpExecutorRepeatable(executor)
    stream = acl.new("aclrtCtxGetCurrentDefaultStream")
    acl.aclnnNeg(None, 0, executor, stream)
    for handle in handles:
        acl.aclDestroyTensor(handle)
