//! How an operator of this folder is told.

use std::ffi::CStr;

use flagos_core::error::Result;

use super::super::call::Call;
use super::super::functions::function;

/// An operator.
pub(crate) struct Custom {
    pub(crate) name: &'static CStr,
    /// The functions without which it cannot be run.
    pub(crate) functions: &'static [&'static str],
    pub(crate) run: fn(&Call<'_>) -> Result<()>,
}

impl Custom {
    /// Why this machine cannot run it; none if it can.
    pub(crate) fn missing(&self) -> Option<String> {
        let mut functions = self.functions.iter().filter_map(|name| function(name));
        functions
            .find(|function| function.phases().is_none())
            .map(|function| function.missing())
    }
}

/// A list of operators, `ALL` or `const NAME;`: `"aten::name" [functions] => run;`.
macro_rules! operators {
    (const $list:ident; $($name:literal [$($function:literal),* $(,)?] => $run:expr;)*) => {
        pub(super) const $list: &[super::operator::Custom] = &[$(super::operator::Custom {
            name: $name,
            functions: &[$($function),*],
            run: $run,
        },)*];
    };
    ($($entries:tt)*) => {
        operators! { const ALL; $($entries)* }
    };
}
pub(super) use operators;
