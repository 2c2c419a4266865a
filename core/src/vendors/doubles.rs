//! The vendors of other crates, as far as this crate's tests name them: descriptions without devices.

use std::sync::LazyLock;

use super::{BuiltIn, Description, Serving};
use crate::descriptions::Declared;
use crate::error::Error;

/// A vendor of this name and these aliases, which has no device.
macro_rules! double {
    ($name:ident, $aliases:expr) => {
        mod $name {
            use super::*;

            fn description() -> &'static Description {
                static DESCRIPTION: LazyLock<Description> =
                    LazyLock::new(|| super::description(stringify!($name), &$aliases));
                &DESCRIPTION
            }

            inventory::submit! { Declared(description) }
            inventory::submit! { BuiltIn { description, ..DOUBLE } }
        }
    };
}

double!(cuda, ["nvidia"]);

const DOUBLE: BuiltIn = BuiltIn {
    description: || unreachable!("each double has its own"),
    rank: 100,
    survey: |_| Err("a double has no devices".into()),
    open: |_, _| Err(Error::device("open", "a double has no devices")),
    launcher: None,
};

fn description(name: &str, aliases: &[&str]) -> Description {
    Description {
        name: name.into(),
        version: "0".into(),
        aliases: aliases.iter().map(|&alias| alias.to_owned()).collect(),
        variables: Vec::new(),
        libraries: Vec::new(),
        device_lost: Vec::new(),
        collective_engine: None,
        triton_backend: None,
        flaggems_vendor: None,
        serving: Serving::Library,
        dlpack_device_type: 12, // kDLExtDev
    }
}
