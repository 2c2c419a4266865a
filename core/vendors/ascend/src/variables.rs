//! Environment variables of this vendor, beside those that CANN reads too.

/// How many executors of operators are kept.
pub(super) const EXECUTORS: &str = "FLAGOS_ASCEND_EXECUTORS";

/// The value of a variable that is set. Bytes that are not UTF-8 become U+FFFD, so that they fail to parse.
pub(super) fn value(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}
