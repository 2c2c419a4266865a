//! `flagos._core`, the one native core module of a process, linked from the bindings of the core and the Rust
//! crates of vendors and adapters. A linked vendor registers itself; a linked adapter adds its layer of the configuration
//! by itself, and its submodule here.

use pyo3::prelude::*;

// The linker drops a crate that no code names.
use flagos_cuda as _;

/// The native core of flagos. Use it through the package `flagos`.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    flagos_bindings::register(module)?;
    te_fl::python::register(module)
}
