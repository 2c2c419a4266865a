//! Environment variables of this vendor, beside those that CANN reads too.

/// How many executors of operators are kept.
pub(super) const EXECUTORS: &str = "FLAGOS_ASCEND_EXECUTORS";
