//! The Python objects that make a call: `tex.rmsnorm_fwd` and `manager.call`.
//!
//! Each remembers the function it last resolved to and the [epoch] it did that in. A call compares
//! one number and calls the function with the caller's own arguments: no environment, no lock, no
//! string. Whatever may change the answer advances the epoch, and the next call asks Python again.

mod epoch;
mod interpreter;
mod objects;
mod vectorcall;

use pyo3::prelude::*;

/// Adds the functions to the module.
///
/// # Errors
/// When the interpreter refuses the types.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    interpreter::find(module.py())?;
    epoch::register(module)?;
    objects::register(module)
}
