//! Vendors whose libraries flagos publishes in distributions of their own: the facts by which a machine is known to have
//! the chip, for one on which the distribution is missing.

use super::elsewhere::ELSEWHERE;

/// A vendor with a distribution of its own.
#[derive(Debug)]
pub struct Wheel {
    /// The vendor's name, and that of the extra of `flagos` which installs the distribution.
    pub vendor: &'static str,
    /// Files of which some exist where there is a device; the last part is a pattern.
    pub device_files: &'static str,
    /// The name by which the dynamic linker finds the library of the chip's runtime.
    pub runtime: &'static str,
}

/// Every such vendor.
pub static WHEELS: [Wheel; 2] = [
    Wheel {
        vendor: "ascend",
        device_files: "/dev/davinci[0-9]*",
        runtime: "libascendcl.so",
    },
    Wheel {
        vendor: "metax",
        device_files: "/dev/mxcd",
        runtime: "libmcruntime.so",
    },
];

impl Wheel {
    /// The distribution.
    #[must_use]
    pub fn distribution(&self) -> String {
        format!("flagos-{}", self.vendor)
    }

    /// The command that installs it.
    #[must_use]
    pub fn install(&self) -> String {
        format!("pip install 'flagos[{}]'", self.vendor)
    }

    /// Whether this is the vendor's name, or another name of it.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        let mut known = ELSEWHERE.iter();
        name == self.vendor
            || known.any(|(vendor, aliases)| *vendor == self.vendor && aliases.contains(&name))
    }

    /// Whether a variable belongs to the vendor's library, which refuses those that it does not know.
    pub(crate) fn owns_variable(&self, name: &str) -> bool {
        let rest = name.strip_prefix("FLAGOS_").and_then(|rest| {
            let upper = self.vendor.to_ascii_uppercase();
            rest.strip_prefix(&*upper)
        });
        rest.is_some_and(|rest| rest.starts_with('_') && rest.len() > 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wheel_knows_its_names_and_its_variables() {
        let [ascend, metax] = &WHEELS;
        assert!(ascend.is_called("ascend") && ascend.is_called("npu"));
        assert!(!ascend.is_called("metax") && metax.is_called("metax"));
        assert!(ascend.owns_variable("FLAGOS_ASCEND_EXECUTORS"));
        for other in [
            "FLAGOS_ASCEND_",
            "FLAGOS_ASCENDED",
            "FLAGOS_METAX_X",
            "ASCEND_X",
        ] {
            assert!(!ascend.owns_variable(other), "{other}");
        }
        assert_eq!(ascend.install(), "pip install 'flagos[ascend]'");
    }
}
