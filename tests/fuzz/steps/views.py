"""Views, and copies between memory formats."""

from __future__ import annotations

from ..draw import Draw


def view(draw: Draw) -> tuple[str, str]:
    source = draw.tensor()
    shape = draw.shape_of(source)
    d1, d2 = draw.dim(source), draw.dim(source)
    order = list(range(len(shape)))
    draw.rng.shuffle(order)
    call = draw.rng.choice(
        (
            "view(-1)",
            f"view({[*shape, 1]})",
            f"view({draw.shape()})",
            f"reshape({[-1, *shape[1:]]})",
            f"flatten({d1}, {d2})",
            f"transpose({d1}, {d2})",
            "t()",
            "mT",
            f"permute({order})",
            f"movedim({d1}, {d2})",
            f"unsqueeze({d1})",
            f"squeeze({d1})",
            "squeeze()",
            f"narrow({d1}, {draw.integer()}, {draw.integer()})",
            f"select({d1}, {draw.integer()})",
            f"expand({[draw.size(), *shape]})",
            f"expand({[-1] * len(shape)})",
            f"unfold({d1}, {draw.integer()}, {draw.integer()})",
            f"diagonal({draw.integer()}, {d1}, {d2})",
            f"split({draw.integer()}, {d1})[0]",
            f"chunk({draw.size()}, {d1})[-1]",
            f"unbind({d1})[0]",
            f"tensor_split({draw.size()}, {d1})[-1]",
            "detach()",
            "real",
            "imag",
            "conj()",
            "H",
            "resolve_conj()",
            f"view({draw.dtype()})",
            "view_as(torch.zeros(6, device=dev))",
            f"swapaxes({d1}, {d2})",
            f"unflatten({d1}, (-1, 1))",
            f"as_strided({draw.shape(0, 2)}, {[draw.rng.choice((0, 1, 2, 5)) for _ in range(2)]}, {draw.integer()})",
            "as_strided((2, 2), (1, 1))",
            "data",
            "positive()",
        )
    )
    return f"view.{call.partition('(')[0]}", f"{draw.new()} = {source}.{call}"


def function_view(draw: Draw) -> str:
    source = draw.tensor()
    complex_source = draw.tensor("complex")
    pairs = draw.tensor("float", where=lambda t: t.dim() > 0 and t.shape[-1] == 2)
    call = draw.rng.choice(
        (
            f"torch.view_as_real({complex_source})",
            f"torch.view_as_complex({pairs})",
            f"torch._neg_view({source})",
            f"torch.atleast_3d({source})",
            f"torch.ravel({source})",
            f"torch.broadcast_to({source}, {draw.shape()})",
            f"torch.select_scatter({source}, {source}.select({draw.dim(source)}, 0), {draw.dim(source)}, 0)",
            f"torch.slice_copy({source}, {draw.dim(source)}, 0, 2)",
            f"torch.diagonal_scatter({source}, {draw.tensor()})",
            f"torch.as_strided_scatter({source}, {draw.tensor()}, (2,), (1,))",
            f"torch.movedim({source}, (0, 1), (1, 0))",
            f"torch.block_diag({source}, {draw.tensor()})",
            f"torch.meshgrid({source}, {draw.tensor()}, indexing='ij')[0]",
            f"torch.rot90({source})",
            f"{source}[{draw.index(source)}]",
            f"torch.view_copy({source}, (-1,))",
        )
    )
    return f"{draw.new()} = {call}"


def several(draw: Draw) -> str:
    """Several views at once, which share a version counter and gradients."""
    source = draw.tensor()
    first, second = draw.new(), draw.new()
    dim = draw.dim(source)
    call = draw.rng.choice(
        (
            f"{source}.chunk(2, {dim})",
            f"{source}.split([1, {draw.size()}], {dim})",
            f"{source}.unbind({dim})",
            f"torch.tensor_split({source}, [1], {dim})",
            f"torch.broadcast_tensors({source}, {draw.like(source)})",
            f"torch.unsafe_chunk({source}, 2, {dim})",
            f"torch.hsplit({source}, 2)",
        )
    )
    return f"{first}, {second} = {call}"


def format(draw: Draw) -> str:
    source = draw.tensor(dims=(4, 5)) if draw.chance(0.5) else draw.tensor()
    formats = ("contiguous_format", "channels_last", "channels_last_3d", "preserve_format")
    chosen = f"torch.{draw.rng.choice(formats)}"
    call = draw.rng.choice(
        (
            f"to(memory_format={chosen})",
            f"contiguous(memory_format={chosen})",
            f"clone(memory_format={chosen})",
            "contiguous()",
            f"to({draw.dtype()}, memory_format={chosen})",
            f"to({draw.dtype()})",
            f"to({draw.dtype()}, copy=True)",
            f"type({draw.dtype()})",
            f"type_as({draw.tensor()})",
            "double()",
            "half()",
            "bool()",
            "long()",
        )
    )
    return f"{draw.new()} = {source}.{call}"
