//! TransformerEngine's operators in the plan of flagos.
//!
//! * [`vendors`] reads names of vendors as TransformerEngine-FL writes them.
//! * [`selection`] is a policy of TransformerEngine-FL, and its translation into a layer of the core.
//! * [`variables`] reads `TE_FL_*` into such a layer, right below the variables of flagos.
//! * [`store`] holds implementations: those of the process, in the core's router, or those of a
//!   registry that a program made for itself.
//! * `python` is the submodule `flagos._core.te`, in the native module that links this crate.

// A vendor of the build, whose names tests use.
#[cfg(test)]
use flagos_cuda as _;

#[cfg(feature = "python")]
pub mod python;
pub mod selection;
pub mod store;
pub mod variables;
pub mod vendors;

/// The namespace of the operators, and the name of this adapter's layer.
pub const NAMESPACE: &str = "te";
