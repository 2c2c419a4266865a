//! Operators that are more than one function of CANN, or whose arguments have to be prepared.

mod attention;
mod elementwise;
mod foreach;
mod indexing;
mod losses;
mod norms;
mod optimizers;
mod pools;
mod random;
mod sizes;

use std::ffi::CStr;

use crate::error::Result;

use super::call::Call;
use super::functions::function;

/// An operator.
pub(super) struct Custom {
    pub(super) name: &'static CStr,
    /// The functions without which it cannot be run.
    pub(super) functions: &'static [&'static str],
    pub(super) run: fn(&Call<'_>) -> Result<()>,
}

impl Custom {
    /// Why this machine cannot run it; none if it can.
    pub(super) fn missing(&self) -> Option<String> {
        let mut functions = self.functions.iter().filter_map(|name| function(name));
        functions
            .find(|function| function.phases().is_none())
            .map(|function| function.missing())
    }
}

/// Every operator of this folder.
pub(super) fn all() -> impl Iterator<Item = &'static Custom> {
    let foreach = foreach::ALL.iter().copied();
    let others = [
        attention::ALL,
        elementwise::ALL,
        indexing::ALL,
        losses::ALL,
        norms::ALL,
        optimizers::ALL,
        pools::ALL,
        random::ALL,
        sizes::ALL,
    ];
    others.into_iter().flatten().chain(foreach)
}

/// A list of operators: `"aten::name" [functions] => run;`.
macro_rules! operators {
    ($($name:literal [$($function:literal),* $(,)?] => $run:expr;)*) => {
        pub(super) const ALL: &[crate::vendors::ascend::kernels::custom::Custom] = &[$(crate::vendors::ascend::kernels::custom::Custom {
            name: $name,
            functions: &[$($function),*],
            run: $run,
        },)*];
    };
}
use operators;
