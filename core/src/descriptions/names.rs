//! The names by which configuration may call vendors.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use crate::Error;
use crate::nearest;

use super::elsewhere::ELSEWHERE;

/// A name that means several vendors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ambiguous {
    /// The name.
    pub name: String,
    /// The vendors that have it as another name.
    pub vendors: Vec<Arc<str>>,
}

impl std::fmt::Display for Ambiguous {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "`{}` is another name of {}",
            self.name,
            joined(&self.vendors, " and ")
        )
    }
}

impl From<Ambiguous> for Error {
    fn from(ambiguous: Ambiguous) -> Self {
        Self::config("vendor", ambiguous.to_string()).with_hint(Ambiguous::HINT)
    }
}

impl Ambiguous {
    /// The remedy.
    pub(crate) const HINT: &'static str = "write the one that is meant";
}

/// The names of vendors: of those that are found, and of those that configuration of other projects names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    found: BTreeSet<Arc<str>>,
    elsewhere: BTreeSet<Arc<str>>,
    /// Other names, each with the vendors that have it.
    aliases: BTreeMap<Arc<str>, Vec<Arc<str>>>,
}

impl Names {
    /// The names of vendors, each given with its other names.
    pub fn new<'n>(vendors: impl IntoIterator<Item = (&'n str, Vec<&'n str>)>) -> Self {
        let mut names = Self {
            found: BTreeSet::new(),
            elsewhere: BTreeSet::new(),
            aliases: BTreeMap::new(),
        };
        for (vendor, aliases) in vendors {
            let vendor: Arc<str> = vendor.into();
            for alias in aliases {
                let meant = names.aliases.entry(alias.into()).or_default();
                if !meant.contains(&vendor) {
                    meant.push(Arc::clone(&vendor));
                }
            }
            names.found.insert(vendor);
        }
        names.add_elsewhere();
        names
    }

    /// Adds the names of other projects that no vendor has taken.
    fn add_elsewhere(&mut self) {
        for (vendor, aliases) in ELSEWHERE {
            // The same vendor may be found under another name.
            let meant = match self.aliases.get(vendor) {
                Some(meant) => meant.clone(),
                None => {
                    if !self.found.contains(vendor) {
                        self.elsewhere.insert(vendor.into());
                    }
                    vec![vendor.into()]
                }
            };
            for alias in aliases {
                if !self.found.contains(*alias) && !self.aliases.contains_key(*alias) {
                    self.aliases.insert((*alias).into(), meant.clone());
                }
            }
        }
    }

    /// The names of the vendors of this build.
    #[must_use]
    pub fn built_in() -> Arc<Self> {
        static NAMES: LazyLock<Arc<Names>> = LazyLock::new(|| {
            let vendors = super::built_in().into_iter().map(|description| {
                let aliases = description.aliases.iter().map(String::as_str);
                (description.name.as_str(), aliases.collect())
            });
            Arc::new(Names::new(vendors))
        });
        Arc::clone(&NAMES)
    }

    /// The vendor that has this name, or this other name. `None`: no vendor is known by it.
    pub fn vendor(&self, name: &str) -> Result<Option<&Arc<str>>, Ambiguous> {
        if let Some(vendor) = self.found.get(name).or_else(|| self.elsewhere.get(name)) {
            return Ok(Some(vendor));
        }
        match self.aliases.get(name).map(Vec::as_slice) {
            None | Some([]) => Ok(None),
            Some([vendor]) => Ok(Some(vendor)),
            Some(vendors) => Err(Ambiguous {
                name: name.to_owned(),
                vendors: vendors.to_vec(),
            }),
        }
    }

    /// The name of the vendor that `name` means, or `name` itself where no vendor is known by it: an implementation
    /// may bring a vendor that has no devices here.
    pub fn canonical(&self, name: &str) -> Result<Arc<str>, Ambiguous> {
        Ok(self.vendor(name)?.map_or_else(|| name.into(), Arc::clone))
    }

    /// The names of the vendors that are found, sorted.
    pub fn found(&self) -> impl Iterator<Item = &str> {
        self.found.iter().map(|name| &**name)
    }

    /// Every vendor's one name.
    pub fn vendors(&self) -> impl Iterator<Item = &str> {
        self.found()
            .chain(self.elsewhere.iter().map(|name| &**name))
    }

    /// Every name and other name.
    pub fn all(&self) -> impl Iterator<Item = &str> {
        self.vendors()
            .chain(self.aliases.keys().map(|name| &**name))
    }

    /// The names of the vendors that are found, each in backticks, for a hint.
    pub(crate) fn listed(&self) -> String {
        joined(self.found(), ", ")
    }

    /// Every name and other name of the vendors that are found.
    pub fn all_found(&self) -> impl Iterator<Item = &str> {
        let is_found = |vendors: &[Arc<str>]| vendors.iter().any(|v| self.found.contains(v));
        let aliases = self
            .aliases
            .iter()
            .filter(move |(_, vendors)| is_found(vendors));
        self.found().chain(aliases.map(|(alias, _)| &**alias))
    }

    /// The hint at the name of a vendor that is found, if one is similar enough.
    pub(crate) fn hint_at_found(&self, name: &str) -> Option<String> {
        nearest::hint(name, self.all_found())
    }
}

fn joined(names: impl IntoIterator<Item = impl AsRef<str>>, between: &str) -> String {
    let names = names.into_iter().map(|name| format!("`{}`", name.as_ref()));
    names.collect::<Vec<_>>().join(between)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn names() -> Names {
        Names::new([
            ("acme", vec!["chip", "npu"]),
            ("other", vec!["chip", "rocm"]),
            ("host", vec![]),
        ])
    }

    #[test]
    fn a_name_or_another_name_means_its_vendor() {
        let names = names();
        let meant = |name| names.vendor(name).expect("one vendor").map(|v| &**v);
        for (name, vendor) in [
            ("acme", Some("acme")),
            ("metax", Some("metax")),
            ("mthreads", Some("musa")),
            ("Acme", None),
            ("", None),
        ] {
            assert_eq!(meant(name), vendor, "{name}");
        }
    }

    #[test]
    fn a_vendor_that_is_found_takes_its_names_from_other_projects() {
        let names = names();
        for (name, vendor) in [
            ("npu", "acme"),
            ("huawei", "ascend"),
            ("rocm", "other"),
            ("amd", "other"),
        ] {
            assert_eq!(
                &*names.canonical(name).expect("one vendor"),
                vendor,
                "{name}"
            );
        }
        assert!(!names.vendors().any(|name| name == "rocm"));
    }

    #[test]
    fn a_name_of_two_vendors_means_neither() {
        let error = names().vendor("chip").expect_err("ambiguous");
        assert_eq!(
            error.to_string(),
            "`chip` is another name of `acme` and `other`"
        );
    }

    #[test]
    fn the_nearest_vendor_that_is_found_is_suggested() {
        let hint = |name| names().hint_at_found(name);
        assert_eq!(hint("acmee").as_deref(), Some("did you mean `acme`?"));
        assert_eq!(hint("chp").as_deref(), Some("did you mean `chip`?"));
        assert_eq!(hint("metaxx"), None);
        assert_eq!(names().listed(), "`acme`, `host`, `other`");
    }

    #[test]
    fn the_vendors_of_this_build_are_known() {
        let names = Names::built_in();
        for description in super::super::built_in() {
            for name in description.aliases.iter().chain([&description.name]) {
                let meant = names.vendor(name).expect("one vendor").expect("known");
                assert_eq!(**meant, *description.name, "{name}");
            }
        }
    }
}
