//! A snapshot of the environment, read through the declarations.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use super::declared::is_vendors;
use super::{ADAPTER_PREFIXES, Group, OP_PREFIX, VARS, Var, VarKind};
use crate::descriptions::wheels::WHEELS;
use crate::nearest;
use crate::{Error, Result};

/// Undeclared variables that decide where configuration files are searched.
const LOCATIONS: [&str; 2] = ["XDG_CONFIG_HOME", "HOME"];

/// A snapshot of the declared variables, and of those with a prefix of flagos or an adapter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Env {
    vars: BTreeMap<String, String>,
    /// Variables that are set but dropped, because the process is privileged.
    ignored: Vec<String>,
    privileged: bool,
}

impl Env {
    /// A snapshot of `pairs`. Drops variables of other programs, and empty values, which mean "not set" except
    /// of a vendor's own variable.
    pub fn from_pairs<K, V>(pairs: impl IntoIterator<Item = (K, V)>) -> Self
    where
        K: Into<String>,
        V: Into<String>,
    {
        let pairs = pairs.into_iter().map(|(k, v)| (k.into(), v.into()));
        let vars =
            pairs.filter(|(name, value)| relevant(name) && (!value.is_empty() || is_vendors(name)));
        Self {
            vars: vars.collect(),
            ..Self::default()
        }
    }

    /// The snapshot for a process with more privileges than the user who started it: without the variables
    /// that name files to open.
    #[must_use]
    pub fn privileged(mut self) -> Self {
        let names_a_path = |name: &str| {
            LOCATIONS.contains(&name)
                || super::declaration(name)
                    .is_some_and(|v| matches!(v.kind, VarKind::Path | VarKind::Paths))
        };
        let (paths, vars) = std::mem::take(&mut self.vars)
            .into_iter()
            .partition(|(name, _)| names_a_path(name));
        let paths: BTreeMap<_, _> = paths;
        // Only variables of flagos are reported as ignored: every user has the locations set.
        let ignored = paths
            .into_keys()
            .filter(|n| !LOCATIONS.contains(&n.as_str()));
        Self {
            vars,
            ignored: ignored.collect(),
            privileged: true,
        }
    }

    /// Whether the process is privileged, and must open no file that a user chose.
    #[must_use]
    pub fn is_privileged(&self) -> bool {
        self.privileged
    }

    /// A snapshot of the process environment. Bytes that are not UTF-8 become U+FFFD, so that they
    /// fail to parse instead of disappearing.
    #[must_use]
    pub fn from_process() -> Self {
        let text = |os: OsString| os.to_string_lossy().into_owned();
        let vars = std::env::vars_os().map(|(name, value)| (text(name), text(value)));
        let env = Self::from_pairs(vars);
        if secure_execution() {
            env.privileged()
        } else {
            env
        }
    }

    /// The text of a variable that is set, and not empty unless it is a vendor's own.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.vars.get(name).map(String::as_str)
    }

    /// The vendors' own variables that are set, by name, empty values included.
    #[must_use]
    pub fn of_vendors(&self) -> BTreeMap<String, String> {
        let vars = self.vars.iter().filter(|(name, _)| is_vendors(name));
        vars.map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }

    /// The file or directory a variable names.
    #[must_use]
    pub fn path(&self, var: &Var) -> Option<PathBuf> {
        self.get(var.name).map(PathBuf::from)
    }

    /// The files or directories a variable names.
    #[must_use]
    pub fn paths(&self, var: &Var) -> Vec<PathBuf> {
        let paths = self.get(var.name).map(std::env::split_paths);
        let paths = paths.into_iter().flatten();
        paths.filter(|path| !path.as_os_str().is_empty()).collect()
    }

    /// The variables that route one operator each, as (variable, encoded operator, value).
    pub fn op_routes(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.vars.iter().filter_map(|(name, value)| {
            let op = name.strip_prefix(OP_PREFIX)?;
            Some((name.as_str(), op, value.as_str()))
        })
    }

    /// A yes/no variable.
    pub fn flag(&self, var: &Var) -> Result<Option<bool>> {
        let Some(text) = self.get(var.name) else {
            return Ok(None);
        };
        match text.trim().to_ascii_lowercase().as_str() {
            "1" | "true" | "on" | "yes" => Ok(Some(true)),
            "0" | "false" | "off" | "no" => Ok(Some(false)),
            _ => Err(bad_value(var, text, "use `1` or `0`")),
        }
    }

    /// Whether the device is to be torch's accelerator before the program names it.
    #[must_use]
    pub fn asks_for_accelerator(&self) -> bool {
        self.get(super::ACCELERATOR.name) == Some("flagos")
    }

    /// An unsigned integer.
    pub fn count(&self, var: &Var) -> Result<Option<u64>> {
        let Some(text) = self.get(var.name) else {
            return Ok(None);
        };
        match text.trim().parse() {
            Ok(count) => Ok(Some(count)),
            Err(_) => Err(bad_value(var, text, "use an unsigned integer")),
        }
    }

    /// An unsigned integer, or `unlimited` as the inner `None`.
    pub fn limit(&self, var: &Var) -> Result<Option<Option<u64>>> {
        let Some(text) = self.get(var.name) else {
            return Ok(None);
        };
        match text.trim() {
            "unlimited" => Ok(Some(None)),
            number => match number.parse() {
                Ok(count) => Ok(Some(Some(count))),
                Err(_) => Err(bad_value(
                    var,
                    text,
                    "use an unsigned integer or `unlimited`",
                )),
            },
        }
    }

    /// A number of bytes.
    pub fn bytes(&self, var: &Var) -> Result<Option<u64>> {
        let Some(text) = self.get(var.name) else {
            return Ok(None);
        };
        match parse_bytes(text) {
            Some(bytes) => Ok(Some(bytes)),
            None => Err(bad_value(var, text, BYTES_HINT)),
        }
    }

    /// Refuses unknown `FLAGOS_*` names; returns a warning for each variable that is set but has no
    /// effect.
    pub fn check(&self) -> Result<Vec<String>> {
        let ignored = self.ignored.iter();
        let mut warnings: Vec<_> = ignored
            .map(|name| {
                format!(
                    "{name} is ignored: it names a path, and the process has more privileges than \
                     the user who started it"
                )
            })
            .collect();
        for name in self.vars.keys() {
            let Some(var) = super::declaration(name) else {
                if name.starts_with("FLAGOS_") && !is_vendors(name) && !is_of_a_wheel(name) {
                    return Err(unknown(name));
                }
                // Plugins of other projects define variables with these prefixes too.
                if of_adapter(name) {
                    let names = VARS.iter().map(|var| var.name);
                    let hint = nearest::hint(name, names.filter(|n| of_adapter(n)));
                    let hint = hint.map(|hint| format!("; {hint}")).unwrap_or_default();
                    warnings.push(format!("{name} is not a variable flagos knows{hint}"));
                }
                continue;
            };
            if var.kind == VarKind::Retired {
                warnings.push(format!("{name} has no effect in flagos: {}", var.doc));
            }
        }
        if self.log()?.op_cache {
            let nothing = "no calls are cached in files; `flagos explain` tells what serves them";
            warnings.push(format!(
                "`op_cache` of {} has no effect in flagos: {nothing}",
                super::LOG.name
            ));
        }
        Ok(warnings)
    }
}

/// Whether the kernel marked the process as one that must not trust its environment: a program with set-user-id,
/// set-group-id or file capabilities.
#[cfg(target_os = "linux")]
fn secure_execution() -> bool {
    // SAFETY: reads a value the kernel gave to the process; there is no precondition.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

#[cfg(not(target_os = "linux"))]
fn secure_execution() -> bool {
    false
}

const BYTES_HINT: &str = "use a number of bytes such as `536870912`, `512MiB` or `4G`";

fn relevant(name: &str) -> bool {
    name.starts_with("FLAGOS_")
        || of_adapter(name)
        || LOCATIONS.contains(&name)
        || VARS.iter().any(|var| var.name == name)
        || is_vendors(name)
}

/// Whether a variable belongs to the library of a distribution, which checks it itself.
fn is_of_a_wheel(name: &str) -> bool {
    WHEELS.iter().any(|wheel| wheel.owns_variable(name))
}

/// Whether a variable belongs to a family that other projects extend too.
fn of_adapter(name: &str) -> bool {
    ADAPTER_PREFIXES.iter().any(|p| name.starts_with(p))
}

fn unknown(name: &str) -> Error {
    let names = VARS.iter().filter(|var| var.group != Group::Legacy);
    let error = Error::config("environment", format!("unknown variable `{name}`"));
    if name.starts_with(OP_PREFIX.trim_end_matches('_')) {
        return error.with_hint("a route is written FLAGOS_OP_<op>, such as FLAGOS_OP_add__Tensor");
    }
    match nearest::hint(name, names.map(|var| var.name)) {
        Some(hint) => error.with_hint(hint),
        None => error.with_hint("unset it; `docs/environment.md` lists the valid names"),
    }
}

pub(super) fn bad_value(var: &Var, text: &str, hint: &str) -> Error {
    let message = format!("`{text}` is not a valid value of {}", var.name);
    Error::config("environment", message).with_hint(hint)
}

/// Reads a number of bytes: an integer and an optional binary suffix
/// (`K`, `KB`, `KiB`, `M`, ..., `T`; case does not matter; all are powers of 1024).
#[must_use]
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, suffix) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let shift = match suffix.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}
