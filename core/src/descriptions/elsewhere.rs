//! Vendors that configuration of other projects names: `backends.conf` of Torch-FL, and the variables and
//! policies of TransformerEngine-FL.
//!
//! Such a configuration stays valid on a machine without the vendor, where nothing matches the name. A vendor that is
//! found takes its names from here.

/// The name of each vendor, and its other names.
pub(super) const ELSEWHERE: [(&str, &[&str]); 11] = [
    ("ascend", &["huawei", "npu"]),
    ("cambricon", &["mlu"]),
    ("enflame", &["gcu"]),
    ("hygon", &["dcu"]),
    ("iluvatar", &[]),
    ("intel", &["xpu"]),
    ("kunlunxin", &[]),
    ("metax", &[]),
    ("musa", &["mthreads"]),
    ("rocm", &["amd"]),
    ("tsingmicro", &[]),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::ELSEWHERE;

    #[test]
    fn every_name_is_of_one_vendor() {
        let mut seen = BTreeSet::new();
        for (vendor, aliases) in ELSEWHERE {
            for name in std::iter::once(vendor).chain(aliases.iter().copied()) {
                assert!(seen.insert(name), "{name}");
            }
        }
    }
}
