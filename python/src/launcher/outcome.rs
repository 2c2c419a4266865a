//! The process's counts of native launches, and of launches on the original path by reason.

use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;
use pyo3::types::PyDict;

macro_rules! reasons {
    ($($name:ident: $text:literal,)*) => {
        /// Why a launch took the original path.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Reason {
            $(#[doc = $text] $name,)*
        }

        const TEXTS: &[&str] = &[$($text),*];
    };
}

reasons! {
    New: "a call of this kind was not seen twice yet",
    Arguments: "an argument of an unknown type",
    Signature: "arguments that do not match the kernel's parameters",
    Kernel: "a kernel that needs Triton's launcher (see `kernels`)",
    Grid: "a grid that is not a tuple of one to three numbers",
    Value: "a number that does not fit its parameter",
    Memory: "memory that kernels do not reach",
    LaunchHooks: "launch hooks are set",
    PreRunHooks: "the function has pre-run hooks",
    Debug: "debugging or instrumentation is on",
    Globals: "a global the kernel uses has changed",
    Warmup: "a warm-up, which launches nothing",
    Driver: "Triton's active driver is another one",
    Replaced: "run() was replaced by other code",
    Refused: "the native launch failed",
}

static NATIVE: AtomicU64 = AtomicU64::new(0);
static FALLBACKS: [AtomicU64; TEXTS.len()] = [const { AtomicU64::new(0) }; TEXTS.len()];

/// Counts a native launch.
#[inline]
pub fn count_native() {
    NATIVE.fetch_add(1, Ordering::Relaxed);
}

/// Counts a launch on the original path.
pub fn count_fallback(reason: Reason) {
    FALLBACKS[reason as usize].fetch_add(1, Ordering::Relaxed);
}

/// `{"native": launches, "fallback": {reason: launches}}`.
#[pyfunction]
fn launch_statistics(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let fallback = PyDict::new(py);
    for (text, count) in TEXTS.iter().zip(&FALLBACKS) {
        let count = count.load(Ordering::Relaxed);
        if count != 0 {
            fallback.set_item(text, count)?;
        }
    }
    let all = PyDict::new(py);
    all.set_item("native", NATIVE.load(Ordering::Relaxed))?;
    all.set_item("fallback", fallback)?;
    Ok(all)
}

/// Starts the counts again from 0.
#[pyfunction]
fn launch_reset_statistics() {
    NATIVE.store(0, Ordering::Relaxed);
    for count in &FALLBACKS {
        count.store(0, Ordering::Relaxed);
    }
}

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(launch_statistics, module)?)?;
    module.add_function(wrap_pyfunction!(launch_reset_statistics, module)?)
}
