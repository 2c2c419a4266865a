"""A plugin: a package with a function that registers its implementations."""

import torch

from te_fl.core import BackendImplKind, OpImpl


def my_rmsnorm_fwd(input, weight, eps=1e-5, **kwargs):
    print("  >>> my_vendor_plugin's rmsnorm_fwd called")
    rsigma = torch.rsqrt(input.square().mean(-1, keepdim=True) + eps)
    return input * rsigma * weight, rsigma


def register(registry):
    """Called with the registry when it is first used."""
    registry.register_impl(
        OpImpl(
            op_name="rmsnorm_fwd",
            impl_id="vendor.myvendor",
            kind=BackendImplKind.VENDOR,
            vendor="myvendor",
            fn=my_rmsnorm_fwd,
            priority=200,
        )
    )
