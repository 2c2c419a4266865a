"""Compares operators with torch where the simulator has a program of its own; prints what was recorded."""

from __future__ import annotations

import ctypes
import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as functional

from core.vendors.ascend.simulated.aclnn import Aclnn
from core.vendors.ascend.simulated.library import D2H, H2D

DTYPES = {
    torch.float32: 0,
    torch.float16: 1,
    torch.int8: 2,
    torch.int32: 3,
    torch.uint8: 4,
    torch.int64: 9,
    torch.float64: 11,
    torch.bool: 12,
    torch.bfloat16: 27,
}
FORMATS = {3: 47, 4: 0, 5: 30}
REDUCTIONS = ("none", "mean", "sum")

acl = Aclnn()
stream = acl.prepare()
empty = torch.empty


@dataclass
class OnDevice:
    """A tensor of torch whose storage is on the device."""

    handle: int
    block: int
    like: torch.Tensor

    def get(self) -> torch.Tensor:
        """What it holds now."""
        storage = torch.UntypedStorage(self.like.untyped_storage().nbytes())
        if storage.nbytes():
            size = storage.nbytes()
            acl.aclrtMemcpy(storage.data_ptr(), size, self.block, size, D2H)
        view = (self.like.storage_offset(), self.like.shape, self.like.stride())
        return torch.empty(0, dtype=self.like.dtype).set_(storage, *view)


def put(tensor: torch.Tensor) -> OnDevice:
    """Copies a tensor to the device, with its strides."""
    storage = tensor.untyped_storage()
    size = storage.nbytes()
    block = acl.malloc(size) if size else 0
    if size:
        acl.aclrtMemcpy(block, size, storage.data_ptr(), size, H2D)
    handle = acl.describe(
        block or None,
        tensor.shape,
        DTYPES[tensor.dtype],
        strides=tensor.stride(),
        offset=int(tensor.storage_offset()),
        format=FORMATS.get(tensor.dim(), 2),
        storage=[size // tensor.element_size()],
    )
    return OnDevice(handle, block, tensor)


@dataclass
class Scalar:
    """A scalar argument, of a dtype if not its own."""

    value: float
    dtype: int | None = None


@dataclass
class Bools:
    """An array of bool."""

    values: Sequence[bool]


def run(name: str, *arguments: Any) -> Callable[[int], Any]:
    """Both phases of an operator; what an argument, by its place, holds then."""
    given: list[Any] = []
    kept: dict[int, Any] = {}
    for place, argument in enumerate(arguments):
        if isinstance(argument, torch.Tensor):
            kept[place] = put(argument)
            given.append(kept[place].handle)
        elif isinstance(argument, tuple):
            kept[place] = [put(each) for each in argument]
            given.append(acl.tensors(kept[place]))
        elif isinstance(argument, list):
            given.append(acl.integers(argument))
        elif isinstance(argument, Bools):
            array = (ctypes.c_bool * len(argument.values))(*argument.values)
            given.append(acl.library.aclCreateBoolArray(array, ctypes.c_uint64(len(array))))
        elif isinstance(argument, Scalar):
            given.append(acl.scalar(argument.value, argument.dtype))
        elif isinstance(argument, float):
            given.append(ctypes.c_double(argument))
        else:
            given.append(argument)
    acl.do(stream, f"aclnn{name}", *given)

    def result(place: int) -> Any:
        found = kept[place]
        return [each.get() for each in found] if isinstance(found, list) else found.get()

    return result


def close(one: torch.Tensor, other: torch.Tensor) -> None:
    torch.testing.assert_close(one, other.detach(), atol=1e-4, rtol=1e-4, check_dtype=False)


Differentiated = tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]


def differentiate(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> Differentiated:
    """The result, a gradient of it, and the gradients of the inputs."""
    leaves = [each.clone().requires_grad_() for each in inputs]
    result = function(*leaves)
    gradient = torch.randn_like(result)
    result.backward(gradient)
    return result.detach(), gradient, [each.grad for each in leaves if each.grad is not None]


def attention() -> None:
    for layout, heads in (("BNSD", 4), ("BSND", 4), ("BSH", 4), ("SBH", 4)):
        q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 6, 8), torch.randn(2, 2, 6, 8)

        def turned(x: torch.Tensor, layout: str = layout) -> torch.Tensor:
            if layout == "BNSD":
                return x
            order = (0, 2, 1, 3) if layout != "SBH" else (2, 0, 1, 3)
            y = x.permute(order)
            return y if layout == "BSND" else y.reshape(*y.shape[:2], -1)

        hidden = torch.ones(5, 6).triu(2).bool()
        result, gradient, (dq, dk, dv) = differentiate(
            lambda q, k, v, hidden=hidden: functional.scaled_dot_product_attention(
                q, k, v, ~hidden, enable_gqa=True
            ),
            *(q, k, v),
        )
        most, total = empty(2, 4, 5, 8), empty(2, 4, 5, 8)
        numbers = (8**-0.5, 1.0, 65536, 65536, heads, layout, 0, 0)
        inputs = [turned(each).contiguous() for each in (q, k, v)]
        out = torch.empty_like(inputs[0])
        options = (None, None, None, hidden, None, *numbers)
        forward = run("FlashAttentionScore", *inputs, *options, most, total, None, out)
        close(forward(19), turned(result))
        back = run(
            "FlashAttentionScoreGrad",
            *inputs,
            turned(gradient).contiguous(),
            *(None, None, None, hidden),
            *(forward(16), forward(17), None, forward(19), None),
            *numbers,
            *(torch.empty_like(each) for each in inputs),
            None,
        )
        for place, expected in ((21, dq), (22, dk), (23, dv)):
            close(back(place), turned(expected))


def normalisation() -> None:
    x, w, b = torch.randn(4, 3, 5, 5), torch.randn(3), torch.randn(3)
    mean, variance = torch.zeros(3), torch.ones(3)
    forward = run(
        "BatchNorm", x, w, b, mean, variance, True, 0.1, 1e-5, empty(x.shape), empty(3), empty(3)
    )
    result, gradient, (dx, dw, db) = differentiate(
        lambda x, w, b: functional.batch_norm(x, mean, variance, w, b, True, 0.1, 1e-5), x, w, b
    )
    for place, expected in ((8, result), (3, mean), (4, variance), (9, x.mean((0, 2, 3)))):
        close(forward(place), expected)
    # What this chip saves is the variance.
    close(forward(10), x.var((0, 2, 3), unbiased=False))
    every = Bools([True, True, True])
    statistics = (mean, variance, forward(9), forward(10))
    out = (empty(x.shape), empty(3), empty(3))
    back = run("BatchNormBackward", gradient, x, w, *statistics, True, 1e-5, every, *out)
    for place, expected in ((10, dx), (11, dw), (12, db)):
        close(back(place), expected)

    x, w = torch.randn(2, 3, 16), torch.randn(16)
    result, gradient, (dx, dw) = differentiate(
        lambda x, w: functional.rms_norm(x, (16,), w, 1e-6), x, w
    )
    forward = run("RmsNorm", x, w, 1e-6, empty(x.shape), empty(2, 3, 1))
    close(forward(3), result)
    back = run("RmsNormGrad", gradient, x, forward(4), w, empty(x.shape), empty(16))
    close(back(4), dx)
    close(back(5), dw)

    x, w, b = torch.randn(2, 6, 5), torch.randn(6), torch.randn(6)
    result, gradient, grads = differentiate(
        lambda x, w, b: functional.silu(functional.group_norm(x, 3, w, b, 1e-5)), x, w, b
    )
    forward = run("GroupNormSilu", x, w, b, 3, 1e-5, empty(x.shape), empty(2, 3), empty(2, 3))
    close(forward(5), result)
    options = (3, "NCHW", 1.0, True, True)
    out = (empty(x.shape), empty(6), empty(6))
    back = run("GroupNormSwishGrad", gradient, forward(6), forward(7), x, w, b, *options, *out)
    for place, expected in zip((11, 12, 13), grads, strict=True):
        close(back(place), expected)


def synchronised_batches() -> None:
    x, w, b = torch.randn(4, 3, 5), torch.randn(3), torch.randn(3)
    mean, root = x.mean((0, 2)), (x.var((0, 2), unbiased=False) + 1e-5).rsqrt()
    parts = [run("BatchNormStats", x[i : i + 2].clone(), 1e-5, empty(3), empty(3)) for i in (0, 2)]
    means, roots = (torch.stack([part(place) for part in parts]) for place in (2, 3))
    running = (torch.zeros(3), torch.ones(3))
    counts = torch.tensor([10.0, 10.0])
    out = (empty(3), empty(3))
    name = "BatchNormGatherStatsWithCounts"
    gathered = run(name, x, means, roots, *running, 0.1, 1e-5, counts, *out)
    close(gathered(8), mean)
    close(gathered(9), root)
    close(gathered(4), 0.9 + 0.1 * x.var((0, 2)))
    _, gradient, (dx, dw, db) = differentiate(
        lambda x, w, b: functional.batch_norm(x, None, None, w, b, True, 0.1, 1e-5), x, w, b
    )
    four = (empty(3), empty(3), empty(3), empty(3))
    sums = run("BatchNormReduceBackward", gradient, x, mean, root, w, True, True, True, *four)
    close(sums(10), dw)
    close(sums(11), db)
    counter = torch.tensor([20], dtype=torch.int32)
    rest = (sums(8), sums(9), counter, empty(x.shape))
    close(run("BatchNormElemtBackward", gradient, x, mean, root, w, *rest)(8), dx)


def activations() -> None:
    x = torch.randn(4, 6)
    out = empty(4, 6)

    def swiglu(x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, -1)
        return functional.silu(first) * second

    _, gradient, (dx,) = differentiate(functional.selu, x)
    close(run("SeluBackward", gradient, functional.selu(x), out)(2), dx)
    _, gradient, (dx,) = differentiate(functional.logsigmoid, x)
    close(run("LogSigmoidBackward", gradient, x, empty(4, 6), out)(3), dx)
    for weight in (torch.randn(6), torch.randn(1)):
        _, gradient, (dx, dw) = differentiate(functional.prelu, x, weight)
        back = run("PreluBackward", gradient, x, weight, out, empty(weight.shape))
        close(back(3), dx)
        close(back(4), dw)
    result, gradient, (dx,) = differentiate(swiglu, x)
    close(run("SwiGlu", x, -1, empty(4, 3))(2), result)
    close(run("SwiGluGrad", gradient, x, -1, out)(3), dx)
    result, gradient, (dx,) = differentiate(lambda x: x * torch.sigmoid(2 * x), x)
    close(run("Swish", x, Scalar(2.0), out)(2), result)
    close(run("SwishBackward", gradient, x, Scalar(2.0), out)(3), dx)
    close(run("Gelu", x, out)(1), functional.gelu(x, approximate="tanh"))


def losses() -> None:
    x, t, w = torch.randn(4, 6).sigmoid(), torch.rand(4, 6), torch.rand(4, 6)
    positive, out = torch.rand(6), empty(4, 6)
    for number, reduction in enumerate(REDUCTIONS):
        one = empty(4, 6) if number == 0 else empty(())
        result, gradient, (dx, dt) = differentiate(
            lambda x, t, reduction=reduction: functional.binary_cross_entropy_with_logits(
                x, t, w, reduction=reduction, pos_weight=positive
            ),
            *(x, t),
        )
        name = "BinaryCrossEntropyWithLogits"
        close(run(name, x, t, w, positive, number, one)(5), result)
        close(run(f"{name}Backward", gradient, x, t, w, positive, number, out)(6), dx)
        close(run(f"{name}TargetBackward", gradient, x, t, w, positive, number, out)(6), dt)
        for is_log in (False, True):
            result, gradient, (dx, _) = differentiate(
                lambda x, t, reduction=reduction, is_log=is_log: functional.kl_div(
                    x, t, reduction=reduction, log_target=is_log
                ),
                *(x, t),
            )
            close(run("KlDiv", x, t, number, is_log, one)(4), result)
            close(run("KlDivBackward", gradient, x, t, number, is_log, out)(5), dx)
        result, gradient, (dx, _) = differentiate(
            lambda x, t, reduction=reduction: functional.l1_loss(x, t, reduction=reduction), x, t
        )
        close(run("L1LossBackward", gradient, x, t, number, out)(4), dx)

        classes, weight = torch.tensor([0, 1, 2, -100, 3]), torch.rand(6)
        z = torch.randn(5, 6)
        result, gradient, (dz,) = differentiate(
            lambda z, reduction=reduction, weight=weight, classes=classes: functional.cross_entropy(
                z, classes, weight, reduction=reduction
            ),
            z,
        )
        numbers = (reduction, -100, 0.0, 0.0)
        one = empty(5) if number == 0 else empty(())
        outs = (False, one, empty(5, 6), None, None)
        forward = run("CrossEntropyLoss", z, classes, weight, *numbers, *outs)
        close(forward(8), result)
        rest = (forward(9), classes, weight, None, None, *numbers, empty(5, 6))
        close(run("CrossEntropyLossGrad", gradient, *rest)(10), dz)

    probabilities, targets = (
        torch.randn(10, 2, 5).log_softmax(-1),
        torch.tensor([[1, 2, 3], [1, 2, 2]]),
    )
    lengths = ([10, 9], [3, 2])
    result, gradient, (dx,) = differentiate(
        lambda x: functional.ctc_loss(
            x, targets, torch.tensor(lengths[0]), torch.tensor(lengths[1]), reduction="none"
        ),
        probabilities,
    )
    alphas = empty(2, 10, 8)
    forward = run("CtcLoss", probabilities, targets, *lengths, 0, False, empty(2), alphas)
    close(forward(6), result)
    found = (forward(6), forward(7), 0, False, empty(10, 2, 5))
    close(run("CtcLossBackward", gradient, probabilities, targets, *lengths, *found)(9), dx)


def pools() -> None:
    x = torch.randn(2, 3, 9, 9)
    result, gradient, (dx,) = differentiate(lambda x: functional.max_pool2d(x, 3, 2, 1), x)
    sizes = ([3, 3], [2, 2], [1, 1], [1, 1], False)
    out, bits = empty(result.shape), empty(2, 3, 9, 3 * 32, dtype=torch.int8)
    forward = run("MaxPool2dWithMask", x, *sizes, out, bits)
    close(forward(6), result)
    close(run("MaxPool2dWithMaskBackward", gradient, x, forward(7), *sizes, empty(x.shape))(8), dx)
    places = empty(result.shape, dtype=torch.int32)
    forward = run("MaxPool2dWithIndices", x, *sizes, out, places)
    close(forward(6), result)
    name = "MaxPool2dWithIndicesBackward"
    close(run(name, gradient, x, forward(7), *sizes, empty(x.shape))(8), dx)

    x = torch.randn(2, 3, 8, 8)
    y, indices = functional.max_pool2d(x, 2, 2, return_indices=True)
    result, gradient, (dy,) = differentiate(
        lambda y: functional.max_unpool2d(y, indices, [2, 2], [2, 2]), y
    )
    close(run("MaxUnpool2d", y, indices, [8, 8], empty(result.shape))(3), result)
    close(run("MaxUnpool2dBackward", gradient, y, indices, [8, 8], empty(y.shape))(4), dy)
    for name, mode in (("Bilinear2d", "bilinear"), ("Nearest2d", "nearest")):
        result, gradient, (dx,) = differentiate(
            lambda x, mode=mode: functional.interpolate(x, size=(12, 13), mode=mode), x
        )
        aligned = (False,) if mode == "bilinear" else ()
        scales = (0.0, 0.0) if mode == "bilinear" else ()
        arguments = (x, [12, 13], *aligned, *scales, empty(result.shape))
        close(run(f"Upsample{name}", *arguments)(len(arguments) - 1), result)
        arguments = (gradient, [12, 13], list(x.shape), *aligned, 0.0, 0.0, empty(x.shape))
        close(run(f"Upsample{name}Backward", *arguments)(len(arguments) - 1), dx)


def optimizers() -> None:
    parameters, gradients = torch.randn(2, 4), torch.randn(2, 4)
    for amsgrad in (False, True):
        mine = [each.clone().requires_grad_() for each in parameters]
        optimizer = torch.optim.AdamW(
            mine, lr=0.1, betas=(0.9, 0.99), weight_decay=0.01, amsgrad=amsgrad
        )

        def zeros() -> tuple[torch.Tensor, ...]:
            return tuple(torch.zeros(4) for _ in parameters)

        state = [tuple(parameters), zeros(), zeros(), zeros()]
        # The step counts what came before.
        for step in range(3):
            for each, gradient in zip(mine, gradients, strict=True):
                each.grad = gradient.clone()
            optimizer.step()
            steps = tuple(torch.tensor([float(step)]) for _ in parameters)
            most = state[3] if amsgrad else None
            lists = (state[0], tuple(gradients), state[1], state[2], most, steps, None, None)
            done = run("FusedAdamw", *lists, 0.1, 0.9, 0.99, 0.01, 1e-8, amsgrad, False)
            places = (0, 2, 3, 4) if amsgrad else (0, 2, 3)
            state = [tuple(done(place)) for place in places] + ([] if amsgrad else [zeros()])
        for one, other in zip(state[0], mine, strict=True):
            close(one, other)


def indexing() -> None:
    x, index = torch.randn(4, 5, 6), torch.tensor([[0, 1], [2, 3]])
    close(run("GatherV2", x, 1, index, empty(4, 2, 2, 6))(3), x[:, index])
    close(run("GatherNd", x, index, False, empty(2, 6))(3), x[index[:, 0], index[:, 1]])
    expected = x.clone()
    expected[index[:, 0], index[:, 1]] = 0
    close(run("ScatterNdUpdate", x, index, torch.zeros(2, 6))(0), expected)
    out = empty(2, 2, 6)
    close(run("SliceV2", x, [1, 0], [3, 4], [0, 1], [1, 2], out)(5), x[1:3, 0:4:2])
    turned = x.flip(1).cumsum(1).flip(1) - x
    close(run("CumsumV2", x, 1, True, True, empty(x.shape))(4), turned)
    values = torch.tensor([3, 1, 3, 2])
    outs = [empty(4, dtype=torch.int64) for _ in range(3)]
    unique = run("Unique2", values, True, True, True, *outs)
    assert unique(4)[:3].tolist() == [1, 2, 3]
    assert unique(5).tolist() == [2, 0, 2, 1]
    assert unique(6)[:3].tolist() == [1, 1, 2]


def halves() -> None:
    x = torch.randn(3, 8).bfloat16()
    out = empty(3, 8, dtype=torch.bfloat16)
    close(run("Softmax", x, -1, out)(2), x.softmax(-1))
    close(run("Softmax", x, -1, empty(3, 8))(2), x.float().softmax(-1))
    close(run("Mean", x, [1], True, 0, empty(3, 1))(4), x.float().mean(1, True))
    y = torch.randn(8, 3).t().half()
    close(run("Mm", y, x.half().t(), empty(3, 3, dtype=torch.float16), 0)(2), y @ x.half().t())

    # Modes of the unit that multiplies: exact, or with 11 bits.
    a, b, out = torch.randn(8, 64), torch.randn(64, 8), empty(8, 8)
    exact = a.double() @ b.double()
    errors = [(run("Mm", a, b, out, mode)(2) - exact).abs().max() for mode in (0, 1, 3)]
    assert errors[0] < 1e-4 < 1e-3 < min(errors[1:]) < 1e-1


def main() -> None:
    torch.manual_seed(0)
    # The mean of a divergence is meant.
    warnings.filterwarnings("ignore", message="reduction: 'mean'")
    for check in (
        attention,
        normalisation,
        synchronised_batches,
        activations,
        losses,
        pools,
        optimizers,
        indexing,
        halves,
    ):
        check()
    print(json.dumps(acl.misuses()))


if __name__ == "__main__":
    main()
