//! Names of vendors. TransformerEngine-FL writes them in upper or lower case, and names some by their company.

/// Names that configuration may use before an implementation of the vendor is registered.
pub const KNOWN: [&str; 13] = [
    "ascend",
    "cambricon",
    "cuda",
    "enflame",
    "host",
    "hygon",
    "iluvatar",
    "intel",
    "kunlunxin",
    "metax",
    "musa",
    "rocm",
    "tsingmicro",
];

/// Other names of the same vendors.
const ALIASES: [(&str, &str); 8] = [
    ("amd", "rocm"),
    ("dcu", "hygon"),
    ("huawei", "ascend"),
    ("mlu", "cambricon"),
    ("mthreads", "musa"),
    ("npu", "ascend"),
    ("nvidia", "cuda"),
    ("xpu", "intel"),
];

/// The one name under which the core knows a vendor: lower case, without aliases.
#[must_use]
pub fn canonical(name: &str) -> String {
    let name = name.trim().to_ascii_lowercase();
    let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
    alias.map_or(name, |(_, vendor)| (*vendor).to_owned())
}

#[cfg(test)]
mod tests {
    use super::{canonical, ALIASES, KNOWN};

    #[test]
    fn case_and_company_do_not_matter() {
        for (written, meant) in [
            ("nvidia", "cuda"),
            ("CUDA", "cuda"),
            (" Iluvatar ", "iluvatar"),
            ("MyChip", "mychip"),
        ] {
            assert_eq!(canonical(written), meant);
        }
    }

    #[test]
    fn aliases_stand_for_known_vendors_and_are_none() {
        for (alias, vendor) in ALIASES {
            assert!(
                KNOWN.contains(&vendor) && !KNOWN.contains(&alias),
                "{alias}"
            );
        }
    }
}
