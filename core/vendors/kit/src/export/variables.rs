//! Variables of a vendor's own, `FLAGOS_VENDOR_NAME_...`, which the core leaves to the vendor's library.

use std::ffi::OsString;

use flagos_core::descriptions::Variable;

/// Fails with the name of a variable that begins as the vendor's own do, and is none of `declared`.
pub fn check_variables(
    vendor: &str,
    declared: &[Variable],
    set: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<(), String> {
    let prefix = format!("FLAGOS_{}_", vendor.to_ascii_uppercase());
    let known = || declared.iter().map(|variable| &*variable.name);
    for (name, _) in set {
        let name = name.to_string_lossy();
        if name.starts_with(&prefix) && !known().any(|known| known == name) {
            let own: Vec<_> = known().filter(|known| known.starts_with(&prefix)).collect();
            let own = if own.is_empty() {
                "the vendor has none of its own".into()
            } else {
                format!("the vendor's own are {}", own.join(", "))
            };
            return Err(format!("unknown variable `{name}`: {own}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(declared: &[&str], name: &str) -> Result<(), String> {
        let variable = |name: &&str| Variable {
            name: (*name).into(),
            text: String::new(),
        };
        let declared: Vec<_> = declared.iter().map(variable).collect();
        check_variables("chip", &declared, [(OsString::from(name), OsString::new())])
    }

    #[test]
    fn a_variable_of_the_vendor_is_a_known_one() {
        let chip = ["FLAGOS_CHIP_QUEUES", "CHIP_VISIBLE_DEVICES"];
        assert_eq!(set(&chip, "FLAGOS_CHIP_QUEUES"), Ok(()));
        assert_eq!(set(&chip, "CHIP_WHATEVER"), Ok(()));
        let refused = |declared: &[&str]| set(declared, "FLAGOS_CHIP_QUEUE").expect_err("unknown");
        assert_eq!(
            refused(&chip),
            "unknown variable `FLAGOS_CHIP_QUEUE`: the vendor's own are FLAGOS_CHIP_QUEUES"
        );
        assert_eq!(
            refused(&[]),
            "unknown variable `FLAGOS_CHIP_QUEUE`: the vendor has none of its own"
        );
    }
}
