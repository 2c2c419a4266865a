"""Memory: storages, resizing, sharing, and copies between the host and the device."""

# ruff: noqa: E501 - the texts of steps stay whole

from __future__ import annotations

import math

from ..draw import Draw


def storage(draw: Draw) -> tuple[str, str]:
    x, y, r = draw.tensor(), draw.tensor(), draw.new("r")
    n = draw.size()
    return draw.rng.choice(
        (
            ("storage.resize_0", f"{x}.untyped_storage().resize_(0)")
            if draw.chance(0.3)
            else ("storage.nbytes", f"{r} = {x}.untyped_storage().nbytes()"),
            (
                "storage.grow",
                f"s = {x}.untyped_storage()\nn = s.nbytes()\ns.resize_(n + 64)\ns[n:].fill_(0) if hasattr(s[n:], 'fill_') else [s.__setitem__(i, 0) for i in range(n, n + 64)]",
            ),
            ("storage.copy_", f"{x}.untyped_storage().copy_({y}.untyped_storage())"),
            ("storage.fill_", f"{x}.untyped_storage().fill_({draw.size()})"),
            ("storage.getitem", f"{r} = {x}.untyped_storage()[{n}]"),
            ("storage.setitem", f"{x}.untyped_storage()[{n}] = 3"),
            ("storage.setslice", f"{x}.untyped_storage()[0:{n}] = 3"),
            ("storage.tolist", f"{r} = {x}.untyped_storage().tolist()[:64]"),
            (
                "storage.clone",
                f"{draw.new()} = torch.tensor([], dtype={x}.dtype, device=dev).set_({x}.untyped_storage().clone())",
            ),
            (
                "storage.data_ptr",
                f"{r} = [{x}.data_ptr() == {y}.data_ptr(), {x}.data_ptr() == 0, ({x}.data_ptr() - {x}.untyped_storage().data_ptr())]",
            ),
            ("storage.cpu", f"{r} = {x}.untyped_storage().cpu().tolist()[:64]"),
            ("storage.typed", f"{r} = {x}.storage().tolist()[:9]"),
            ("storage.typed_cast", f"{r} = {x}.storage().float().tolist()[:9]"),
            ("storage.typed_write", f"{x}.storage()[0] = 1"),
            ("storage.typed_slice", f"{r} = {x}.storage()[:3].tolist()"),
            ("storage.byteswap", f"{x}.untyped_storage().byteswap({x}.dtype)"),
            (
                "storage.numbers",
                f"{r} = [{x}.element_size(), {x}.nbytes, {x}.is_set_to({y}), {x}.storage_offset()]",
            ),
            (
                "storage.deepcopy",
                f"s = copy.deepcopy({x}.untyped_storage())\n{r} = [s.nbytes(), s.tolist()[:32], s.resizable()]",
            ),
            (
                "storage.constructed",
                f"{draw.new()} = torch.zeros(0, dtype=torch.uint8, device=dev).set_(torch.UntypedStorage({n}, device=dev).fill_(1))",
            ),
            ("storage.is_shared", f"{r} = {x}.is_shared()"),
        )
    )


def set_(draw: Draw) -> tuple[str, str]:
    x, y = draw.tensor(), draw.tensor()
    sizes = draw.shape(1, 2)
    strides = [draw.rng.choice((0, 1, 2, 3)) for _ in sizes]
    offset = max(-9, min(draw.integer(), 9))
    # What a storage grows by is uninitialised.
    storage = f"s = {y}.untyped_storage()\nn = s.nbytes()\n"
    filled = "\n[s.__setitem__(i, 0) for i in range(n, s.nbytes())]"
    return draw.rng.choice(
        (
            ("set_.tensor", f"{x}.set_({y})"),
            ("set_.storage", f"{x}.set_({y}.untyped_storage())"),
            (
                "set_.storage_size",
                f"{storage}{x}.set_(s, {abs(offset)}, (1, 2), (2, 1)){filled}",
            ),
            (
                "set_.strided",
                f"{draw.new()} = torch.zeros(0, dtype={y}.dtype, device=dev).set_({y}.untyped_storage(), 0, {y}.shape, {y}.stride())",
            ),
            ("set_.empty", f"{x}.set_()"),
            ("set_.wrong", f"{storage}{x}.set_(s, {offset}, {sizes}, {strides[:1]}){filled}"),
            ("set_.detached", f"{x}.detach().set_({y}.detach())"),
            ("resize_.smaller", f"{x}.resize_({max(0, math.prod(draw.shape_of(x)) - 1)})"),
            ("resize_.reshape", f"{x}.resize_({x}.numel())"),
            (
                "resize_.fill",
                f"{draw.new()} = torch.zeros(2, dtype={y}.dtype, device=dev).resize_({sizes}).fill_(1)",
            ),
            (
                "resize_.grow",
                f"with torch.no_grad():\n    {x}.resize_({draw.shape()})\n    {x}.zero_()",
            ),
            ("resize_as_", f"{x}.resize_as_({y}).fill_(2)"),
        )
    )


def between(draw: Draw) -> tuple[str, str]:
    """Copies between the host and the device, in both directions."""
    x, y, h, t = draw.tensor(), draw.tensor(), draw.new("h"), draw.new()
    host = draw.rng.choice(draw.host) if draw.host else f"torch.arange({draw.size()}.0)"
    nb = draw.chance(0.5)
    return draw.rng.choice(
        (
            ("copy.cpu", f"{h} = {x}.to('cpu', copy=True)"),
            ("copy.cpu_strided", f"{h} = {x}.transpose(0, -1).to('cpu', copy=True)"),
            ("copy.to", f"{t} = {host}.to(dev, copy=True, non_blocking={nb})"),
            ("copy.to_dtype", f"{t} = {host}.to(dev, {draw.dtype()}, copy=True)"),
            ("copy.strided", f"{t} = {host}.detach().expand(2, *{host}.shape).to(dev, copy=True)"),
            ("copy.into", f"{x}.copy_({host}, non_blocking={nb})"),
            ("copy.out_of", f"{host}.copy_({y}, non_blocking={nb})"),
            ("copy.cast", f"{host}.copy_({y})"),
            ("copy.numpy", f"{draw.new('r')} = {x}.detach().cpu().numpy().tolist()"),
            (
                "copy.from_numpy",
                f"import numpy\n{t} = torch.from_numpy(numpy.arange(6, dtype='int16').reshape(2, 3)).to(dev, copy=True)",
            ),
            (
                "copy.pinned",
                f"{t} = {host}.detach().clone().pin_memory().to(dev, copy=True, non_blocking=True)",
            ),
            ("copy.tolist", f"{draw.new('r')} = {x}.tolist()"),
            ("copy.item", f"{draw.new('r')} = {x}.item()"),
            ("copy.bool", f"{draw.new('r')} = bool({x})"),
            ("copy.int", f"{draw.new('r')} = int({x})"),
            ("copy.repr", f"{draw.new('r')} = len(repr({x}.detach().cpu()))"),
            ("copy.grad", f"{h} = {x}.to('cpu', copy=True)\n{h}.sum().backward()"),
            ("copy.number", f"{x}.fill_(torch.tensor(2.5))"),
            ("copy.number_add", f"{t} = {x} + torch.tensor(2)"),
            ("copy.index", f"{t} = {x}[torch.tensor([0, 0])]"),
            ("copy.mask", f"{t} = {x}[({x} == {x}).cpu()]"),
            ("copy.iter", f"{draw.new('r')} = [y.sum() for y in {x}][:3]"),
        )
    )


def serialized(draw: Draw) -> tuple[str, str]:
    x, y, t, u = draw.tensor(), draw.tensor(), draw.new(), draw.new()
    return draw.rng.choice(
        (
            ("pickle", f"{t} = pickle.loads(pickle.dumps({x}))"),
            ("pickle.two", f"{t}, {u} = pickle.loads(pickle.dumps([{x}, {y}]))"),
            ("deepcopy", f"{t} = copy.deepcopy({x})"),
            ("deepcopy.two", f"{t}, {u} = copy.deepcopy([{x}, {y}])"),
            ("copy", f"{t} = copy.copy({x})"),
            (
                "save",
                f"f = io.BytesIO()\ntorch.save([{x}, {y}], f)\nf.seek(0)\n{t}, {u} = torch.load(f)",
            ),
            (
                "save.map",
                f"f = io.BytesIO()\ntorch.save({x}, f)\nf.seek(0)\n{draw.new('h')} = torch.load(f, map_location='cpu')",
            ),
            (
                "save.legacy",
                f"f = io.BytesIO()\ntorch.save({x}, f, _use_new_zipfile_serialization=False)\nf.seek(0)\n{t} = torch.load(f)",
            ),
            (
                "parameter.pickle",
                f"{t} = pickle.loads(pickle.dumps(torch.nn.Parameter({x}.detach().clone())))",
            ),
        )
    )
