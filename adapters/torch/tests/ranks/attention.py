"""Attention of DTensor and of `context_parallel` beside the same calls on one device. Run once a rank.

Arguments: the device, the backend, and the checks, of `CHECKS`.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.experimental import context_parallel, implicit_replication
from torch.distributed.tensor.experimental._attention import (
    context_parallel_unshard,
    set_rotate_method,
)
from torch.distributed.tensor.experimental._context_parallel import _attention as cp
from torch.nn import functional as F

DEVICE, BACKEND, *CHECKED = sys.argv[1:]
B, H, S, E = 4, 4, 8, 4

MASKS = {
    "none": None,
    "rows": (S, S),
    "one": (1, 1, S, S),
    "batches": (B, 1, S, S),
    "heads": (1, H, S, S),
    "all": (B, H, S, S),
}


def made(*sizes):
    return torch.randn(sizes).to(DEVICE)


def inputs(*, heads=H, transposed=True):
    """Query (B, H, S, E), and key and value of `heads` heads; in the memory order of a model's if `transposed`."""
    if transposed:
        return [made(B, S, h, E).transpose(1, 2) for h in (H, heads, heads)]
    return [made(B, h, S, E) for h in (H, heads, heads)]


def mask_of(name, *, boolean):
    if MASKS[name] is None:
        return None
    mask = made(*MASKS[name])
    return (mask > 0) | torch.eye(S, dtype=torch.bool, device=DEVICE) if boolean else mask


def attention(q, k, v, **arguments):
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=q.shape[1] != k.shape[1], **arguments)


def with_gradients(q, k, v, weight, **arguments):
    """The output (B, S, H * E), as a model goes on with it, and the gradients of query, key and value."""
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    out = attention(*leaves, **arguments).transpose(1, 2).flatten(2)
    (out * weight).sum().backward()
    return [out.detach(), *(leaf.grad for leaf in leaves)]


def over(mesh, placements, *tensors):
    return [distribute_tensor(x, mesh, placements, src_data_rank=None) for x in tensors]


def are_equal(oracle, got):
    return all(torch.equal(a, b.full_tensor()) for a, b in zip(oracle, got, strict=True))


def agrees(mesh, placements, others, masks, whole, mask, *, causal):
    """Whether DTensors with these placements of the query, of key and value, and of the mask give one device's bits."""
    q, k, v, weight = whole
    oracle = with_gradients(q, k, v, weight, attn_mask=mask, is_causal=causal)
    split = over(mesh, placements, q) + over(mesh, others, k, v)
    split += over(mesh, [Replicate()] * mesh.ndim, weight)
    if mask is not None:
        (mask,) = over(mesh, masks, mask)
    return are_equal(oracle, with_gradients(*split, attn_mask=mask, is_causal=causal))


# ------------------------------------------------------------------------------------------- checks


def check_split(mesh):
    """Every placement of the tensors and of a mask, and fewer heads of key and value."""
    wrong, cases = [], 0
    choices = [Replicate(), Shard(0), Shard(1), Shard(2)]
    for name, boolean, (heads, transposed) in itertools.product(
        MASKS, (False, True), ((H, False), (H, True), (2, True), (1, True))
    ):
        if boolean and name in ("one", "batches", "heads"):
            continue
        whole = [*inputs(heads=heads, transposed=transposed), made(B, S, H * E)]
        mask = mask_of(name, boolean=boolean)
        of_mask = [Replicate()]
        if mask is not None:
            of_mask += [Shard(d) for d in range(mask.ndim) if mask.shape[d] > 1]
        causal = mask is None and boolean
        for ours, theirs, masks in itertools.product(choices, choices, of_mask):
            if theirs not in (ours, Replicate()) or (heads == 1 and theirs == Shard(1)):
                continue
            cases += 1
            if not agrees(mesh, [ours], [theirs], [masks], whole, mask, causal=causal):
                wrong.append((name, boolean, heads, transposed, ours, theirs, masks))
    assert not wrong, (len(wrong), wrong[:5])
    print(f"split {cases}")


def check_local(mesh):
    """Split batches and heads need no other rank, and whatever does not fit is found."""
    whole = [*inputs(), made(B, S, H * E)]
    for placement, (name, placed) in itertools.product(
        (Shard(0), Shard(1)), (("none", None), ("rows", Replicate()), ("all", Replicate()))
    ):
        mask = mask_of(name, boolean=False)
        if mask is not None:
            (mask,) = over(mesh, [placed], mask)
        with CommDebugMode() as communication:
            got = attention(*over(mesh, [placement], *whole[:3]), attn_mask=mask)
        assert got.placements == (placement,)
        assert communication.get_total_counts() == 0, communication.get_comm_counts()

    other = made(B, 1, S, S)
    with pytest.raises(RuntimeError, match=r"attn_mask is a torch\.Tensor"):
        attention(*over(mesh, [Shard(1)], *whole[:3]), attn_mask=other)
    with implicit_replication():
        got = attention(*over(mesh, [Shard(1)], *whole[:3]), attn_mask=other)
    assert torch.equal(got.full_tensor(), attention(*whole[:3], attn_mask=other))


def check_square(mesh):
    """Batches over one dimension of a mesh and heads over the other, or one of them over both."""
    size = dist.get_world_size() // 2
    square = init_device_mesh(DEVICE, (2, size), mesh_dim_names=("data", "model"))
    choices = (Replicate(), Shard(0), Shard(1))
    for name, heads in itertools.product(("none", "all"), (H, 2)):
        whole = [*inputs(heads=heads), made(B, S, H * E)]
        mask = mask_of(name, boolean=True)
        for placements, masks in itertools.product(
            itertools.product(choices, choices), ([Replicate()] * 2, [Shard(0), Shard(1)])
        ):
            case = (name, heads, placements, masks)
            # Two heads are not for four ranks.
            others = placements if heads == H else [Replicate(), placements[1]]
            assert agrees(square, placements, others, masks, whole, mask, causal=mask is None), case


@contextlib.contextmanager
def balanced(on):
    """By torch's own switch, which is not public."""
    with mock.patch.object(cp._cp_options, "enable_load_balance", on):
        yield


def in_context_parallel(mesh, q, k, v, weight, causal, attention=attention):
    """Output (B, H, S, E) and gradients, of all ranks' parts of the sequence."""
    parts = [x.clone() for x in (q, k, v, weight)]
    with context_parallel(mesh, buffers=parts, buffer_seq_dims=[2] * 4):
        assert parts[0].shape[2] == S // mesh.size()
        leaves = [part.requires_grad_() for part in parts[:3]]
        out = attention(*leaves, is_causal=causal)
        (out * parts[3]).sum().backward()
        local = [out.detach(), *(leaf.grad for leaf in leaves)]
        for leaf in leaves:
            leaf.requires_grad_(False)
        return context_parallel_unshard(mesh, local, [2] * 4)


def check_ring(mesh):
    """The sequence over the ranks: in order and balanced, by both rotations."""
    tolerances = {torch.float32: 1e-5, torch.float64: 1e-5, torch.bfloat16: 3e-2}
    largest = 0.0
    for rotation in ("allgather", "alltoall"):
        set_rotate_method(rotation)
        for (causal, balance), heads, (dtype, tolerance), transposed in itertools.product(
            ((False, False), (True, False), (True, True)),
            (H, 2),
            tolerances.items(),
            (False, True),
        ):
            q, k, v = (x.to(dtype) for x in inputs(heads=heads, transposed=transposed))
            weight = made(B, H, S, E).to(dtype)
            leaves = [x.clone().requires_grad_() for x in (q, k, v)]
            out = attention(*leaves, is_causal=causal)
            (out * weight).sum().backward()
            oracle = [out.detach(), *(leaf.grad for leaf in leaves)]
            with balanced(balance):
                got = in_context_parallel(mesh, q, k, v, weight, causal)
            for a, b in zip(oracle, got, strict=True):
                torch.testing.assert_close(b, a, rtol=tolerance, atol=tolerance)
                if dtype == torch.float32:
                    largest = max(largest, (a - b).abs().max().item())
    print(f"ring {largest:.1e}")


def check_refusals(mesh):
    """What context_parallel does not do is told, and leaves nothing behind."""
    q, k, v = inputs()
    mask = made(B, H, S, S)
    with balanced(False):
        parts = [x.clone() for x in (q, k, v, mask)]
        with context_parallel(mesh, buffers=parts, buffer_seq_dims=[2] * 4):
            with pytest.raises(NotImplementedError, match="no attention with a mask"):
                attention(*parts[:3], attn_mask=parts[3])
            leaf = parts[0].requires_grad_()
            out = attention(*parts[:3], is_causal=True)
            leaf.requires_grad_(False)
        with pytest.raises(NotImplementedError, match="backward pass within it as well"):
            out.sum().backward()

        # Within it, DTensors that are split otherwise are what they are elsewhere.
        cp._enable_context_parallel_dispatcher()
        split = over(mesh, [Shard(1)], q, k, v)
        assert torch.equal(
            attention(*split, is_causal=True).full_tensor(), attention(q, k, v, is_causal=True)
        )
        with pytest.raises(NotImplementedError, match=r"key has the placements .*Replicate"):
            attention(*over(mesh, [Shard(2)], q), *over(mesh, [Replicate()], k, v))
        cp._disable_context_parallel_dispatcher()


def check_compiled(mesh):
    """A graph is right after the switch has changed, which is no part of its guards, and refused outside."""
    compiled = torch.compile(attention, backend="aot_eager")
    q, k, v = inputs()
    weight = made(B, H, S, E)
    oracle = in_context_parallel(mesh, q, k, v, weight, causal=True)
    for on in (True, False, True):
        with balanced(on):
            got = in_context_parallel(mesh, q, k, v, weight, causal=True, attention=compiled)
        for a, b in zip(oracle, got, strict=True):
            torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-5)

    parts = [x.clone() for x in (q, k, v)]
    with context_parallel(mesh, buffers=parts, buffer_seq_dims=[2] * 3):
        copies = [part.clone().requires_grad_() for part in parts]  # the buffers are written again
        out = compiled(*copies, is_causal=True)
    with pytest.raises(NotImplementedError, match=r"compiled within context_parallel, and called"):
        out.sum().backward()


def check_controls(mesh):
    """The comparisons above find a mask in a wrong place, and ranks that know their own part alone."""
    from torch_fl.distributed import attention as ours

    whole, mask = [*inputs(), made(B, S, H * E)], mask_of("batches", boolean=False)
    arguments = (mesh, [Shard(0)], [Shard(0)], [Shard(0)], whole, mask)
    assert agrees(*arguments, causal=False)
    # A part of one batch, which the kernel takes for all.
    first = mock.Mock(side_effect=lambda tensor, placements: tensor.full_tensor()[:1])
    local = ours._local
    with mock.patch.object(
        ours, "_local", lambda t, p: first(t, p) if t.shape[1] == 1 else local(t, p)
    ):
        assert not agrees(*arguments, causal=False)
    assert first.called

    q, k, v = inputs()
    oracle = attention(q, k, v, is_causal=True)
    with mock.patch.object(cp, "_distribute_function"), balanced(True):
        got, *_ = in_context_parallel(mesh, q, k, v, made(B, H, S, E), causal=True)
    assert (got - oracle).abs().max() > 0.1


def check_unknown(mesh):
    """A torch whose context_parallel is another: a sequence that is split might be of it, and is refused."""
    from torch_fl.distributed import context_parallel as ours

    split = over(mesh, [Shard(2)], *inputs())
    assert attention(*split).shape == (B, H, S, E)
    ours._module.cache_clear()
    with (
        mock.patch.object(cp, "custom_ops", {}),
        pytest.raises(NotImplementedError, match="is not the one that flagos knows"),
    ):
        attention(*split)
    assert attention(*over(mesh, [Shard(1)], *inputs())).shape == (B, H, S, E)


CHECKS = {
    "split": check_split,
    "local": check_local,
    "square": check_square,
    "ring": check_ring,
    "refusals": check_refusals,
    "compiled": check_compiled,
    "controls": check_controls,
    "unknown": check_unknown,
}


def main() -> None:
    if DEVICE != "cpu":
        torch.accelerator.set_device_index(0)
    dist.init_process_group(BACKEND)
    mesh = init_device_mesh(DEVICE, (dist.get_world_size(),))
    torch.manual_seed(3)
    for check in CHECKED:
        CHECKS[check](mesh)
    dist.destroy_process_group()
    print("passed")


if __name__ == "__main__":
    main()
