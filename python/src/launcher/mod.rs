//! Launching Triton's kernels without Triton's Python code. The launcher stands in for `JITFunction.run` and
//! FlagGems' `LibEntry.run` in every call that is like an earlier one.
//!
//! A key (`key`) describes a call: types, alignments and values as Triton and FlagGems distinguish them, or
//! finer. To a key belongs a *launch plan* (`launch_plan`), kept in a cache for each function (`cache`). The
//! Python package `torch_fl.launcher`, which knows those libraries, makes the plan from a call on the original
//! path. A call that the launcher does not understand takes the original path, and is counted with its reason
//! (`outcome`).

mod cache;
mod call;
mod compiled;
mod ffi;
mod interception;
mod key;
mod knobs;
mod launch_plan;
mod memory;
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
