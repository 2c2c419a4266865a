//! Names of vendors, which TransformerEngine-FL writes in upper or lower case.

use std::sync::Arc;

use flagos_core::Result;
use flagos_core::descriptions::Names;

/// The one name under which the core knows a vendor, or the name in lower case where no vendor is known by it.
///
/// # Errors
/// [`flagos_core::ErrorKind::Config`] for another name that several vendors have.
pub fn canonical(name: &str, names: &Names) -> Result<Arc<str>> {
    Ok(names.canonical(&name.trim().to_ascii_lowercase())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_and_other_names_do_not_matter() {
        let names = Names::new([("acme", vec!["chip"]), ("other", vec!["chip", "best"])]);
        for (written, meant) in [
            ("BEST", "other"),
            ("Acme", "acme"),
            ("DCU", "hygon"),
            (" Iluvatar ", "iluvatar"),
            ("MyChip", "mychip"),
        ] {
            assert_eq!(&*canonical(written, &names).expect("one vendor"), meant);
        }
        let error = canonical("Chip", &names).expect_err("ambiguous");
        assert!(error.to_string().contains("`acme` and `other`"), "{error}");
    }
}
