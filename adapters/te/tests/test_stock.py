"""TransformerEngine from 2.20.2 on, NVTE_PLUGIN=te_fl: the contract, over a double of its native module."""

from __future__ import annotations

from pathlib import Path

from adapters.te.tests.processes import run

HERE = Path(__file__).parent
DOUBLE = HERE / "native_double.py"

# TransformerEngine's own steps around its native module: load it under its name, give it a second one, and
# hand over; when the plugin fails, everything is as if it had not been asked for, with a warning.
LOADER = f"""
    import importlib, importlib.util, os, sys, warnings
    import torch
    def load_framework_extension():
        name = "transformer_engine_torch"
        spec = importlib.util.spec_from_file_location(name, {str(DOUBLE)!r})
        native = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(native)
        plugin = os.environ.get("NVTE_PLUGIN")
        if plugin:
            try:
                sys.modules[name + "_nv"] = native
                importlib.import_module(plugin).load_plugins()
            except Exception as error:
                sys.modules.pop(name + "_nv", None)
                sys.modules[name] = native
                warnings.warn(f"NVTE_PLUGIN={{plugin}} but plugin loading failed: {{error}}", RuntimeWarning)
        return native
    native = load_framework_extension()
    import transformer_engine_torch as tex
    x, w = torch.randn(4, 8), torch.ones(8)
"""


def stock(program: str, fails: bool = False, **variables: str) -> str:
    return run(LOADER + program, fails=fails, **{"NVTE_PLUGIN": "te_fl", **variables})


def test_operators_are_real_attributes_and_the_rest_is_the_native_module() -> None:
    stock(
        """
    assert tex is not native and type(tex.rmsnorm_fwd).__name__ == "Operator"
    assert "rmsnorm_fwd" in vars(tex) and "layernorm_fwd" in vars(tex)
    assert tex.DType is native.DType and tex.FP8TensorMeta is native.FP8TensorMeta
    assert tex.device_supports_multicast is native.device_supports_multicast
    assert tex.__version__ == "9.9" and tex.__file__ == native.__file__
    # TransformerEngine asks for these, and takes its own where the plugin has none.
    assert not hasattr(tex, "flash_attention") and not hasattr(tex, "get_attention_backend")
    native.added_later = 3
    assert tex.added_later == 3
    tex.nvshmem_finalize()
    assert native.CALLS == ["nvshmem_finalize"]
    """
    )


def test_ours_first_with_native_enumerators_then_by_preference_the_native_ones() -> None:
    stock(
        """
    y, _, r = tex.rmsnorm_fwd(x, w, 1e-5, None, None, tex.DType.kBFloat16, 0, False)
    assert y.dtype == torch.bfloat16 and native.CALLS == []
    import flagos
    from te_fl.core import with_preference
    with with_preference("vendor"):
        assert tex.rmsnorm_fwd(x, w, 1e-5, None, None, None, 0, False)[0] == "native"
    assert "vendor.cuda" in str(flagos.explain("te::rmsnorm_fwd"))
    """
    )
    program = """
    assert tex.rmsnorm_fwd(x, w, 1e-5, None, None, None, 0, False)[0] == "native"
    assert tex.layernorm_fwd(x, w, w, 1e-5)[0].shape == x.shape
    """
    stock(program, TE_FL_PER_OP="rmsnorm_fwd=vendor:nvidia")
    stock(
        "    assert isinstance(tex.rmsnorm_fwd(x, w, 1e-5)[0], torch.Tensor)",
        TE_FL_PREFER="vendor",
        TE_FL_DENY_VENDORS="NVIDIA",
    )


def test_what_ours_declines_goes_to_the_native_function() -> None:
    stock(
        """
    class MXFP8Quantizer: pass
    assert not tex.gelu(x, MXFP8Quantizer()).any() and native.CALLS == ["gelu"]
    """
    )


def test_native_kernels_are_left_out_when_asked() -> None:
    stock(
        """
    from te_fl.core import get_manager
    assert get_manager().registry.get_implementation("gelu", "vendor.cuda") is None
    assert tex.nvshmem_finalize is native.nvshmem_finalize
    """,
        TE_FL_SKIP_CUDA="1",
    )


def test_loading_again_changes_nothing() -> None:
    stock(
        """
    import te_fl
    te_fl.load_plugins()
    assert sys.modules["transformer_engine_torch"] is tex
    """
    )


def test_a_mistake_in_the_configuration_is_told_and_transformer_engine_goes_on() -> None:
    out = stock(
        """
    assert tex is native and "transformer_engine_torch_nv" not in sys.modules
    """,
        TE_FL_PREFER="vendro",
    )
    assert "plugin loading failed" in out and "TE_FL_PREFER; did you mean `vendor`?" in out


def test_without_the_native_module_the_error_says_what_to_do() -> None:
    out = run("import te_fl; te_fl.load_plugins()", fails=True)
    assert "ImportError: transformer_engine_torch_nv is not loaded" in out
    assert "NVTE_PLUGIN=te_fl" in out and "flagos doctor" in out and "te_fl.core" in out


def test_without_the_variable_nothing_is_touched() -> None:
    stock("    assert tex is native and 'te_fl' not in sys.modules", NVTE_PLUGIN="")
