"""New tensors."""

from __future__ import annotations

from ..draw import Draw


def dense(draw: Draw) -> str:
    dtype = draw.dtype()
    shape = draw.shape()
    name = draw.new()
    if dtype.is_complex or dtype.is_floating_point:
        text = f"{name} = torch.randn({shape}, dtype={dtype}, device=dev)"
        return text + (".requires_grad_()" if draw.chance(0.4) else "")
    high = 2 if str(dtype) == "torch.bool" else 9
    low = 0 if high == 2 or str(dtype) == "torch.uint8" else draw.rng.choice((0, 0, -9))
    return f"{name} = torch.randint({low}, {high}, {shape}, dtype={dtype}, device=dev)"


def filled(draw: Draw) -> str:
    dtype, shape = draw.dtype(), draw.shape()
    call = draw.rng.choice(
        (
            f"torch.zeros({shape}, dtype={dtype}, device=dev)",
            f"torch.ones({shape}, dtype={dtype}, device=dev)",
            f"torch.full({shape}, {draw.number()}, device=dev)",
            f"torch.full({shape}, {draw.number()}, dtype={dtype}, device=dev)",
            f"torch.eye({draw.size()}, {draw.size()}, dtype={dtype}, device=dev)",
            f"torch.arange({draw.size()}, dtype={dtype}, device=dev)",
            f"torch.arange({draw.integer() % 9}, {draw.size()}, {draw.size() / 2}, device=dev)",
            f"torch.linspace({draw.number()}, {draw.number()}, {draw.size()}, device=dev)",
            f"torch.logspace(-1, 2, {draw.size()}, dtype={dtype}, device=dev)",
            f"torch.tril_indices({draw.size()}, {draw.size()}, {draw.integer()}, device=dev)",
            f"torch.empty({shape}, dtype={dtype}, device=dev).fill_({draw.number()})",
            f"torch.randperm({draw.size()}, device=dev)",
            f"torch.complex(torch.rand({shape}, device=dev), torch.rand({shape}, device=dev))",
            f"torch.hann_window({draw.size()}, device=dev)",
            f"torch.vander(torch.arange({draw.size()}, device=dev))",
        )
    )
    return f"{draw.new()} = {call}"


def special(draw: Draw) -> str:
    kind = draw.rng.choice(("float", "float", "int"))
    values = (
        "[0.0, -0.0, nan, inf, -inf, 1.5, 1e-40, 65504.0]"
        if kind == "float"
        else "[0, 1, 127, 3, 3, -1, 2, 100]"
    )
    text = f"{draw.new()} = torch.tensor({values}, dtype={draw.dtype('float')}, device=dev)"
    if kind == "int":
        text = f"{draw.new()} = torch.tensor({values}, device=dev).to({draw.dtype('int')})"
    return text + draw.rng.choice(
        ("", ".view(2, 4)", "[1:]", ".view(2, 2, 2)", ".requires_grad_()")
    )


def strided(draw: Draw) -> str:
    """Offsets, holes, overlaps, channels last: of memory that is larger than the tensor."""
    dtype = draw.dtype("float", "int")
    base = f"torch.arange(600, device=dev).remainder(37).sub(9).to({dtype})"
    view = draw.rng.choice(
        (
            f".as_strided({draw.shape(2, 2)}, (7, 2), 301)",
            f".as_strided({draw.shape(1, 1)}, (3,), 550)",
            ".as_strided((3, 4), (1, 1), 5)",
            ".as_strided((4, 4), (0, 1))",
            ".view(2, 3, 100)[:, :, 5:9].transpose(0, 2)",
            ".view(20, 30)[::3, 1::4]",
            "[:240].view(2, 5, 4, 6).to(memory_format=torch.channels_last)",
            "[:240].view(1, 5, 4, 2, 6).to(memory_format=torch.channels_last_3d)",
            "[597:]",
            "[10:10]",
            ".view(5, 120)[:, 7].expand(3, 5)",
        )
    )
    return f"{draw.new()} = {base}{view}"


def alike(draw: Draw) -> str:
    source = draw.tensor()
    call = draw.rng.choice(
        (
            f"torch.zeros_like({source})",
            f"torch.ones_like({source}, dtype={draw.dtype()})",
            f"torch.full_like({source}, {draw.number()})",
            f"torch.rand_like({source})",
            f"torch.randn_like({source}, dtype={draw.dtype('float')})",
            f"torch.randint_like({source}, 0, 5)",
            f"{source}.new_zeros({draw.shape()})",
            f"{source}.new_full({draw.shape()}, {draw.number()})",
            f"{source}.new_tensor([[1, 2], [3, 4]])",
            f"{source}.new_ones({draw.shape()}, dtype={draw.dtype()})",
            f"torch.empty_like({source}).fill_({draw.number()})",
            f"torch.empty_like({source}, memory_format=torch.contiguous_format).zero_()",
            f"torch.empty_strided({draw.shape(2, 2)}, (3, 1), device=dev).fill_(2)",
            f"torch.as_tensor({source}, dtype={draw.dtype()})",
            f"torch.asarray({source})",
            f"{source}.clone(memory_format=torch.preserve_format)",
            f"torch.tensor({source}.tolist(), device=dev)",
        )
    )
    return f"{draw.new()} = {call}"


def random(draw: Draw) -> str:
    source = draw.tensor("float")
    generator = "torch.Generator(dev).manual_seed(5)"
    call = draw.rng.choice(
        (
            f"torch.normal({source}, 1.0)",
            f"torch.bernoulli({source}.detach().sigmoid())",
            f"torch.multinomial({source}.detach().abs() + 0.1, 2, replacement={draw.chance(0.5)})",
            f"torch.poisson({source}.detach().abs())",
            f"{source}.uniform_(-1, 1)",
            f"{source}.detach().normal_(0, 2)",
            f"{source}.exponential_()",
            f"{source}.geometric_(0.5)",
            f"{source}.cauchy_()",
            f"{source}.log_normal_()",
            f"{source}.random_(0, 10)",
            f"F.dropout({source}, {draw.rng.choice((0.0, 0.3, 1.0))})",
            f"torch.rand({draw.shape()}, generator={generator}, device=dev)",
            f"torch.randperm({draw.size()}, generator={generator}, device=dev)",
            f"F.rrelu({source}, training=True)",
            f"F.gumbel_softmax({source}, dim={draw.dim(source)})",
            f"F.feature_alpha_dropout({source}, 0.5, training=True)",
            f"torch.distributions.Categorical(logits={source}.detach()).sample()",
        )
    )
    return f"{draw.new()} = {call}"
