//! Launching Triton's kernels without its Python: what `JITFunction.run` and FlagGems' `LibEntry.run` do
//! between the caller and `cuLaunchKernelEx`, once both have seen a call of the same kind.
//!
//! A call is described by a key (`key`): types, alignments and values as Triton and FlagGems distinguish
//! them, or finer. What a key stands for, a *launch plan* (`launch_plan`), is learnt from the original path by the Python
//! package that knows those libraries, `torch_fl.launcher`. Whatever is not understood takes the original
//! path, and is counted with its reason (`outcome`).

mod cache;
mod call;
mod compiled;
mod ffi;
mod interception;
mod key;
mod knobs;
mod launch_plan;
mod methods;
mod outcome;
mod pack;
mod recorder;
mod tensor;

use pyo3::prelude::*;

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<compiled::CompiledKernel>()?;
    module.add_class::<launch_plan::LaunchPlan>()?;
    module.add_function(wrap_pyfunction!(compiled::launch_pack, module)?)?;
    module.add_function(wrap_pyfunction!(compiled::launch_size, module)?)?;
    methods::register(module)?;
    knobs::register(module)?;
    tensor::register(module)?;
    recorder::register(module)?;
    outcome::register(module)
}
