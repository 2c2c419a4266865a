"""Operators that compute: reductions, products, networks, sorting, transforms, decompositions."""

# ruff: noqa: E501 - the texts of steps stay whole

from __future__ import annotations

import contextlib

from ..draw import Draw


def _step(group: str, draw: Draw, calls: tuple[str, ...]) -> tuple[str, str]:
    call = draw.rng.choice(calls)
    return f"{group}.{call.partition('(')[0]}", f"{draw.new()} = {call}"


def reduction(draw: Draw) -> tuple[str, str]:
    source = draw.tensor()
    dim, keep = draw.dim(source), draw.chance(0.4)
    dims = draw.rng.choice((f"{dim}", f"({dim}, {draw.dim(source)})", "()", "None"))
    names = ["sum", "mean", "amax", "amin", "nansum", "std", "var", "norm", "logsumexp"]
    plain = [
        "sum",
        "mean",
        "prod",
        "max",
        "min",
        "all",
        "any",
        "std",
        "var",
        "median",
        "argmax",
        "argmin",
        "count_nonzero",
        "norm",
        "aminmax",
    ]
    scans = ["cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"]
    pick = draw.rng.choice
    dtype = draw.rng.choice(("", "", f", dtype={draw.dtype()}"))
    call = pick(
        (
            f"{pick(names)}({source}, dim={dims}, keepdim={keep})",
            f"{pick(plain)}({source})",
            f"{pick(('sum', 'prod', 'mean'))}({source}, {dim}{dtype})",
            f"{pick(('max', 'min', 'median', 'mode', 'nanmedian', 'kthvalue', 'all', 'any'))}({source}, {dim})",
            f"{pick(scans)}({source}, {dim})",
            f"var_mean({source}, {dims}, unbiased={keep})",
            f"quantile({source}, 0.3, {dim})",
            f"histc({source}, 5)",
            f"bincount({draw.tensor('int')}, minlength=3)",
            f"diff({source}, dim={dim})",
            f"trapezoid({source}, dim={dim})",
            f"sum({source}, {dim}, out={draw.tensor()})",
            f"dist({source}, {draw.like(source)}, 1)",
            f"equal({source}, {draw.like(source)})",
            f"allclose({source}, {draw.like(source)})",
            f"argmax({source}, {dim}, keepdim={keep})",
            f"cov({source})",
        )
    )
    return f"reduction.{call.partition('(')[0]}", f"{draw.new()} = torch.{call}"


def _out_of_product(draw: Draw, source: str, fresh: str) -> str:
    """A tensor for a product to write, `fresh` in the place of one in the memory that it reads.

    torch does not refuse that, and leaves the result open: `torch.matmul(a, b, out=a)` gives up to eight results for the
    same numbers in one process, on the CPU with one thread, and NaNs of other bits.
    """
    out = draw.tensor()
    places = []
    for name in (source, out):
        with contextlib.suppress(RuntimeError, KeyError):  # without a storage, or of no name
            places.append(draw.value(name).untyped_storage().data_ptr())
    if len(places) == 2 and places[0] == places[1]:
        return fresh
    return out


def product(draw: Draw) -> tuple[str, str]:
    a = draw.tensor("float", "complex", "int", dims=(2, 3))
    shape = draw.shape_of(a) or (1,)
    dtype = draw.names[a].dtype if a in draw.names else "torch.float32"
    columns = draw.size()
    b = f"torch.ones({[*shape[:-2], shape[-1], columns]}, dtype={dtype}, device=dev)"
    other = draw.tensor(where=lambda t: t.dim() == len(shape))
    fresh = f"torch.zeros({columns}, dtype={dtype}, device=dev)"
    vector = f"torch.ones({shape[-1]}, dtype={dtype}, device=dev)"
    return _step(
        "matmul",
        draw,
        (
            f"torch.matmul({a}, {b})",
            f"{a} @ {a}.mT",
            f"{a} @ {other}",
            f"torch.mm({a}, {b})",
            f"torch.bmm({a}, {b})",
            f"torch.mv({a}, {vector})",
            f"torch.addmm({draw.tensor()}, {a}, {b}, beta={draw.number()})",
            f"torch.baddbmm({draw.tensor()}, {a}, {b})",
            f"torch.einsum('...ij,...kj->...ik', {a}, {a})",
            f"torch.tensordot({a}, {other}, 1)",
            f"torch.mm({a}, {b}, out={_out_of_product(draw, a, fresh)})",
            f"torch.matmul({a}, {b}, out={_out_of_product(draw, a, fresh)})",
            f"F.linear({a}, {a})",
            f"F.linear({a}, {b}.mT, torch.ones({columns}, dtype={dtype}, device=dev))",
            f"torch.outer({draw.tensor(dims=(1,))}, {draw.tensor(dims=(1,))})",
            f"torch.dot({vector}, {draw.tensor(dims=(1,))})",
            f"torch.kron({a}, {a}[..., :1])",
            f"torch.cdist({a}, {other})",
            f"torch.linalg.multi_dot([{a}, {a}.mT, {a}])",
            f"F.bilinear({a}, {a}, torch.ones(2, {shape[-1]}, {shape[-1]}, dtype={dtype}, device=dev))",
            f"F.scaled_dot_product_attention({a}, {a}, {a}, is_causal={draw.chance(0.5)})",
            f"torch.chain_matmul({a}, {a}.mT)",
        ),
    )


def network(draw: Draw) -> tuple[str, str]:
    x = draw.tensor("float", dims=(3, 4, 5))
    y = draw.tensor("float")
    shape = draw.shape_of(x) or (1, 1, 1)
    dtype = draw.names[x].dtype if x in draw.names else "torch.float32"
    n = max(1, len(shape) - 2)
    channels = shape[1] if len(shape) > 1 else 1
    weight = f"torch.ones({[4, channels] + [draw.size() for _ in range(min(n, 3))]}, dtype={dtype}, device=dev)"
    vector = f"torch.ones({channels}, dtype={dtype}, device=dev)"
    last = f"torch.full(({shape[-1]},), 0.5, dtype={dtype}, device=dev)"
    ydim = draw.dim(y)
    k, s, p = draw.rng.choice((1, 2, 3)), draw.rng.choice((1, 2)), draw.rng.choice((0, 1, 2))
    n = min(n, 3)
    mode = draw.rng.choice(("nearest", "bilinear", "linear", "area", "bicubic"))
    pad = draw.rng.choice(("constant", "reflect", "replicate", "circular"))
    target = draw.tensor("int", "float")
    reduce = draw.rng.choice(("mean", "sum", "none"))
    loss = draw.rng.choice(
        [
            "mse_loss",
            "l1_loss",
            "smooth_l1_loss",
            "huber_loss",
            "kl_div",
            "binary_cross_entropy_with_logits",
            "soft_margin_loss",
        ]
    )
    activation = draw.rng.choice(
        [
            "relu",
            "gelu",
            "silu",
            "elu",
            "selu",
            "leaky_relu",
            "hardtanh",
            "hardswish",
            "softplus",
            "mish",
            "celu",
            "logsigmoid",
            "tanhshrink",
            "softsign",
            "relu6",
            "hardsigmoid",
            "glu",
        ]
    )
    return _step(
        "nn",
        draw,
        (
            f"F.conv{n}d({x}, {weight}, stride={s}, padding={p})",
            f"F.conv{n}d({x}, {weight}, {y}, dilation={s})",
            f"F.conv_transpose{n}d({x}, {weight}.transpose(0, 1), stride={s}, padding={p})",
            f"F.batch_norm({x}, {vector} * 0, {vector}, training={draw.chance(0.5)})",
            f"F.layer_norm({y}, {draw.shape_of(y)[-1:]})",
            f"F.layer_norm({x}, ({shape[-1]},), {last}, {last})",
            f"F.group_norm({x}, {draw.rng.choice((1, 2))})",
            f"F.instance_norm({x})",
            f"F.rms_norm({y}, {draw.shape_of(y)[-1:]})",
            f"F.softmax({y}, {ydim})",
            f"F.log_softmax({y}, {ydim}, dtype={draw.dtype('float')})",
            f"F.{activation}({y})",
            f"F.{activation}({y})",
            f"F.{loss}({y}, {draw.like(y)}, reduction='{reduce}')",
            f"F.cross_entropy({x}, torch.zeros({[shape[0], *shape[2:]]}, dtype=torch.long, device=dev), reduction='{reduce}')",
            f"F.cross_entropy({y}, {target})",
            f"F.nll_loss({x}, {target})",
            f"F.max_pool{max(2, n)}d({x}, {k}, {s}, {p})",
            f"F.avg_pool{n}d({x}, {k}, {s}, {p})",
            f"F.adaptive_avg_pool{n}d({x}, {draw.size()})",
            f"F.adaptive_max_pool{n}d({x}, {draw.size()}, return_indices=True)[0]",
            f"F.interpolate({x}, scale_factor={draw.rng.choice((2, 0.5))}, mode='{mode}')",
            f"F.pad({x}, ({p}, {s}), '{pad}', {draw.rng.choice((0, 1))})"
            if pad == "constant"
            else f"F.pad({x}, ({p}, {s}), '{pad}')",
            f"F.unfold({x}, {k}, padding={p})",
            f"F.pixel_shuffle({x}, 2)",
            f"F.embedding(torch.randint(0, {max(1, shape[0])}, (3,), device=dev), {y})",
            f"F.embedding_bag(torch.zeros(2, 2, dtype=torch.long, device=dev), {y})",
            f"F.one_hot({draw.tensor('int')}.long())",
            f"F.normalize({y}, dim={ydim})",
            f"F.cosine_similarity({y}, {draw.like(y)}, {ydim})",
            f"F.grid_sample({x}, torch.zeros({shape[0]}, 2, 2, 2, dtype={dtype}, device=dev), align_corners=False)",
            f"F.prelu({y}, torch.full((1,), 0.2, device=dev))",
            f"F.local_response_norm({x}, 2)",
            f"F.triplet_margin_loss({y}, {draw.like(y)}, {draw.like(y)})",
            "F.ctc_loss(torch.randn(4, 1, 3, device=dev).log_softmax(2), torch.ones(1, 2, dtype=torch.long, device=dev), torch.tensor([4]), torch.tensor([2]))",
        ),
    )


def sorting(draw: Draw) -> tuple[str, str]:
    source = draw.tensor()
    dim, k = draw.dim(source), draw.size()
    stable, descending = draw.chance(0.5), draw.chance(0.5)
    return _step(
        "sort",
        draw,
        (
            f"torch.sort({source}, dim={dim}, stable=True, descending={descending})[1]",
            f"torch.sort({source}, {dim}, {descending})[0]",
            f"torch.argsort({source}, dim={dim}, stable={stable})",
            f"torch.topk({source}, {k}, {dim}, largest={descending})[0]",
            f"torch.unique({source}, return_inverse=True)[1]",
            f"torch.unique({source}, dim={dim})",
            f"torch.unique_consecutive({source}, return_counts=True)[1]",
            f"torch.nonzero({source})",
            f"torch.nonzero({source}, as_tuple=True)[0]",
            f"torch.searchsorted({source}, {draw.like(source)})",
            f"torch.bucketize({source}, torch.tensor([-1.0, 0.0, 2.0], device=dev))",
            f"torch.isin({source}, {draw.tensor()})",
            f"torch.msort({source})",
            f"torch.argwhere({source})",
            f"torch.where({source})[0]",
            f"torch.cat([{source}, {draw.tensor()}], {dim})",
            f"torch.cat([{source}, {source}], {dim}, out={draw.tensor()})",
            f"torch.stack([{source}, {source}], {dim})",
            f"torch.cartesian_prod({draw.tensor(dims=(1,))}, {draw.tensor(dims=(1,))})",
            f"torch.combinations({draw.tensor(dims=(1,))})",
            f"torch.tril({source}, {draw.integer()})",
            f"torch.hstack([{source}, {draw.tensor()}])",
        ),
    )


def fourier(draw: Draw) -> tuple[str, str]:
    x = draw.tensor("float", "complex", "int")
    dim = draw.dim(x)
    norm = draw.rng.choice(("forward", "backward", "ortho"))
    one = draw.rng.choice(["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
    many = draw.rng.choice(["fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn"])
    return _step(
        "fft",
        draw,
        (
            f"torch.fft.{one}({x}, dim={dim}, norm='{norm}')",
            f"torch.fft.{one}({x}, {draw.size()}, {dim})",
            f"torch.fft.{many}({x}, norm='{norm}')",
            f"torch.fft.fftshift({x})",
            f"torch.stft({x}, 4, return_complex=True, window=torch.ones(4, device=dev))",
            f"torch.fft.fft({x}, out={draw.tensor('complex')})",
        ),
    )


def linear_algebra(draw: Draw) -> tuple[str, str]:
    square = draw.tensor(
        "float", "complex", dims=(2, 3), where=lambda t: t.shape[-1:] == t.shape[-2:-1]
    )
    any_matrix = draw.tensor("float", "complex", dims=(2, 3))
    a = draw.rng.choice(
        (square, f"({any_matrix} @ {any_matrix}.mH)", "torch.zeros(3, 3, device=dev)")
    )
    b = f"torch.ones_like({a})"
    singular = "torch.ones(4, 4, device=dev)"
    return _step(
        "linalg",
        draw,
        (
            f"torch.linalg.inv({a})",
            f"torch.linalg.inv({singular})",
            f"torch.linalg.solve({a}, {b})",
            f"torch.linalg.cholesky({a})",
            f"torch.linalg.cholesky_ex({a})[1]",
            f"torch.linalg.qr({any_matrix})[1]",
            f"torch.linalg.svdvals({any_matrix})",
            f"torch.linalg.svd({any_matrix}, full_matrices={draw.chance(0.5)})[1]",
            f"torch.linalg.eigvalsh({a})",
            f"torch.linalg.eigh({a})[0]",
            f"torch.linalg.eigvals({a})",
            f"torch.linalg.det({a})",
            f"torch.linalg.slogdet({a})[1]",
            f"torch.linalg.lu({any_matrix})[2]",
            f"torch.linalg.lu_factor_ex({a})[0]",
            f"torch.linalg.matrix_norm({any_matrix}, {draw.rng.choice((1, 2, -1))})",
            f"torch.linalg.vector_norm({any_matrix}, {draw.number()})",
            f"torch.linalg.pinv({any_matrix})",
            f"torch.linalg.matrix_rank({any_matrix})",
            f"torch.linalg.matrix_power({a}, {draw.integer()})",
            f"torch.linalg.solve_triangular({a}, {b}, upper=True)",
            f"torch.triangular_solve({b}, {a})[0]",
            f"torch.linalg.cond({a})",
            f"torch.linalg.matrix_exp({a})",
            f"torch.linalg.inv({a}, out={draw.tensor()})",
            f"torch.linalg.solve({singular}, {b}, out={draw.tensor()})",
            f"torch.linalg.ldl_factor({a})[0]",
            f"torch.linalg.householder_product({any_matrix}, {draw.tensor('float', dims=(1,))})",
            f"torch.cholesky_solve({b}, {a})",
            f"torch.linalg.cross({any_matrix}, {any_matrix})",
        ),
    )
