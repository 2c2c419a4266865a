"""Sparse and nested tensors: made of live tensors, and given back as dense ones."""

# ruff: noqa: E501 - the texts of steps stay whole

from __future__ import annotations

from ..draw import Draw


def sparse(draw: Draw) -> tuple[str, str]:
    x, t, r = draw.tensor(dims=(2, 3)), draw.new(), draw.new("r")
    made = draw.rng.choice(
        (
            ".to_sparse()",
            ".to_sparse_csr()",
            ".to_sparse(1)",
            ".to_sparse_csc()",
            ".to_sparse_bsr((1, 1))",
            ".to_sparse_coo()",
        )
    )
    s = f"s = {x}{made}\n"
    call = draw.rng.choice(
        (
            f"{t} = s.to_dense()",
            f"{t} = (s * 2).to_dense()",
            f"{t} = (s + s).to_dense()",
            f"{t} = torch.mm(s, {x}.mT)",
            f"{t} = s @ torch.ones({x}.shape[-1], 2, dtype={x}.dtype, device=dev)",
            f"{t} = torch.sparse.sum(s).to_dense()",
            f"{t} = torch.sparse.sum(s, 0).to_dense()",
            f"{t} = s.coalesce().values()",
            f"{t} = s.coalesce().indices()",
            f"{t} = s.values()",
            f"{t} = s.crow_indices()",
            f"{r} = [s._nnz(), s.sparse_dim(), s.dense_dim()]",
            f"{t} = s.transpose(0, 1).to_dense()",
            f"{t} = s[0].to_dense()",
            f"{t} = s.sin().to_dense()",
            f"{t} = s.neg_().to_dense()",
            f"{t} = s.add_(s).to_dense()",
            f"{t} = s.mul_(3).coalesce().to_dense()",
            f"{t} = s.to(torch.float64).to_dense()",
            f"{t} = torch.sparse.softmax(s, 1).to_dense()",
            f"{t} = torch.cat([s, s]).to_dense()",
            f"{t} = s.cpu().to(dev).to_dense()",
            f"{t} = copy.deepcopy(s.to_sparse_coo()).to_dense()",
            f"{t} = {x} + s",
            f"{t} = {x}.sparse_mask(s.coalesce()).to_dense()",
            f"{t} = s.clone().zero_().to_dense()",
            f"{t} = s.index_select(0, torch.tensor([0, 0], device=dev)).to_dense()",
            f"{t} = torch.addmm({x}, s, {x})",
            f"s.requires_grad_()\n(s * 2).to_dense().sum().backward()\n{t} = s.grad.to_dense()",
            f"{t} = s",
        )
    )
    return "sparse" + made.partition("(")[0], s + call


def sparse_built(draw: Draw) -> tuple[str, str]:
    """From indices, which may be wrong."""
    t = draw.new()
    numbers = [[draw.rng.choice((0, 1, 2, 2)) for _ in range(4)] for _ in range(2)]
    if draw.chance(0.2):
        numbers[0][0] = draw.rng.choice((-1, 9))
    values = draw.tensor(dims=(1, 2)) if draw.chance(0.3) else "torch.arange(4.0, device=dev)"
    return draw.rng.choice(
        (
            (
                "sparse_coo",
                f"s = torch.sparse_coo_tensor({numbers}, {values}, (3, 3), device=dev, check_invariants=True)\n{t} = s.coalesce().values()",
            ),
            (
                "sparse_coo",
                f"s = torch.sparse_coo_tensor(torch.tensor({numbers}, device=dev), {values}, check_invariants=True)\n{t} = s.to_dense()",
            ),
            (
                "sparse_csr",
                f"s = torch.sparse_csr_tensor([0, 2, 4], {numbers[0]}, {values}, (2, 3), device=dev, check_invariants=True)\n{t} = s.to_dense()",
            ),
            (
                "sparse_empty",
                f"{t} = torch.zeros(3, 3, layout=torch.sparse_coo, device=dev).to_dense()",
            ),
            (
                "sparse_embedding",
                f"w = torch.ones(5, 2, device=dev, requires_grad=True)\nF.embedding(torch.tensor({numbers[0]}, device=dev), w, sparse=True).sum().backward()\n{t} = w.grad.to_dense()",
            ),
        )
    )


def nested(draw: Draw) -> tuple[str, str]:
    x, y, t, u = (
        draw.tensor("float", dims=(2,)),
        draw.tensor("float", dims=(2,)),
        draw.new(),
        draw.new(),
    )
    layout = draw.rng.choice(("strided", "jagged"))
    head = f"n = torch.nested.{draw.rng.choice(('nested_tensor', 'as_nested_tensor'))}([{x}, {y}], layout=torch.{layout})\n"
    call = draw.rng.choice(
        (
            f"{t}, {u} = n.unbind()",
            f"{t} = torch.nested.to_padded_tensor(n, 0.0)",
            f"{t}, {u} = (n * 2).unbind()",
            f"{t}, {u} = (n + n).unbind()",
            f"{t}, {u} = F.relu(n).unbind()",
            f"{t}, {u} = F.softmax(n, -1).unbind()",
            f"{t}, {u} = F.linear(n, torch.ones(2, {x}.shape[-1], device=dev)).unbind()",
            f"{t}, {u} = n.transpose(1, 2).unbind()",
            f"{t} = n.sum(-1).unbind()[0]",
            f"{t} = n[0]",
            f"{t} = n.values()",
            f"{t}, {u} = F.layer_norm(n, ({x}.shape[-1],)).unbind()",
            f"{t}, {u} = n.detach().clone().mul_(3).unbind()",
            f"{t}, {u} = torch.matmul(n, n.transpose(1, 2)).unbind()",
            f"{t}, {u} = n.to(torch.float64).unbind()",
            f"n.requires_grad_()\n{t} = torch.nested.to_padded_tensor(n * 2, 0.0)\n{t}.sum().backward()",
        )
    )
    return f"nested.{layout}", head + call
