//! Environment variables of this vendor, beside those that CANN reads too.

use std::ffi::OsString;

use flagos_core::descriptions::Variable;

/// How many executors of operators are kept.
pub(super) const EXECUTORS: &str = "FLAGOS_ASCEND_EXECUTORS";
/// How the names of this vendor's own variables begin.
const PREFIX: &str = "FLAGOS_ASCEND_";

/// The value of a variable that is set. Bytes that are not UTF-8 become U+FFFD, so that they fail to parse.
pub(super) fn value(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// Fails with the name of a variable that begins as this vendor's own do, and is none of `declared`.
pub(super) fn check(
    declared: &[Variable],
    set: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<(), String> {
    let known = || declared.iter().map(|variable| &*variable.name);
    for (name, _) in set {
        let name = name.to_string_lossy();
        if name.starts_with(PREFIX) && !known().any(|known| known == name) {
            let own: Vec<_> = known().filter(|known| known.starts_with(PREFIX)).collect();
            return Err(format!(
                "unknown variable `{name}`: the vendor's own are {}",
                own.join(", ")
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_of_the_vendor_is_a_known_one() {
        let declared = [Variable {
            name: EXECUTORS.into(),
            text: String::new(),
        }];
        let set = |name: &str| check(&declared, [(OsString::from(name), OsString::new())]);
        assert_eq!(set(EXECUTORS), Ok(()));
        assert_eq!(set("ASCEND_WHATEVER"), Ok(()));
        let reason = set("FLAGOS_ASCEND_EXECUTOR").expect_err("unknown");
        assert!(
            reason.contains("`FLAGOS_ASCEND_EXECUTOR`") && reason.ends_with(EXECUTORS),
            "{reason}"
        );
    }
}
