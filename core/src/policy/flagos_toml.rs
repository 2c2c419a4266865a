//! The grammar of `flagos.toml`.
//!
//! ```toml
//! include = ["site.toml"]          # read first, relative to this file
//!
//! [policy]
//! order = ["flagos", "vendor", "reference"]
//! strict = false
//! max_cpu_fallback = 100           # or "unlimited"
//! deny_vendors = ["acme"]
//! allow_vendors = ["host", "other"]
//! log_dispatch = false
//! log_fallback = false
//! graphs = "off"                   # or "auto"
//! queue = "off"                    # or "auto"
//!
//! [ops]
//! "aten::mm" = "cpu"
//! "add.*" = ["vendor", "cpu"]      # the same as "vendor|cpu"
//!
//! [host]
//! devices = 2
//! memory = "8GiB"
//! seed = 1
//! delay_us = 50
//! fault = "alloc=0.01,copy=0.001"
//! ```

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::file::{At, Includes};
use super::layer::{Layer, Route};
use super::pattern::OpPattern;
use super::selector::{Selector, push_unique, valid_name};
use super::source::Sourced;
use crate::descriptions::Names;
use crate::env::{self, HostSettings};
use crate::nearest;
use crate::{Error, Result};

type Key<'i> = Spanned<std::borrow::Cow<'i, str>>;
type Value<'i> = Spanned<DeValue<'i>>;

/// The content of a `flagos.toml`, with that of the files it includes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Document {
    /// `[policy]` and `[ops]`.
    pub layer: Layer,
    /// `[host]`.
    pub host: HostSettings,
}

impl Document {
    fn overlay(&mut self, other: Self) {
        self.layer.overlay(other.layer);
        let host = other.host;
        self.host.devices = host.devices.or(self.host.devices);
        self.host.memory = host.memory.or(self.host.memory);
        self.host.seed = host.seed.or(self.host.seed);
        self.host.delay_us = host.delay_us.or(self.host.delay_us);
        if !host.faults.is_empty() {
            self.host.faults = host.faults;
        }
    }
}

pub(crate) fn read(includes: &mut Includes, path: &Path, by: Option<&At>) -> Result<Document> {
    let names = includes.names;
    includes.with_file(path, by, |includes, start, text| {
        parse(includes, &Text { start, text, names })
    })
}

/// The text of one file, which turns spans into lines.
struct Text<'t> {
    start: &'t At,
    text: &'t str,
    names: &'t Names,
}

impl Text<'_> {
    fn at(&self, span: Range<usize>) -> At {
        let end = span.start.min(self.text.len());
        let before = &self.text.as_bytes()[..end];
        self.start
            .line(1 + before.iter().filter(|b| **b == b'\n').count())
    }

    fn unknown_key(&self, key: &Key, table: &str, keys: &[&str]) -> Error {
        let error = self
            .at(key.span())
            .error(format!("unknown key `{}` in {table}", key.get_ref()));
        match nearest::hint(key.get_ref(), keys.iter().copied()) {
            Some(hint) => error.with_hint(hint),
            None => error.with_hint(format!("the keys are {}", keys.join(", "))),
        }
    }

    fn expected(&self, key: &Key, value: &Value, what: &str) -> Error {
        let kind = value.get_ref().type_str();
        let message = format!("`{}` must be {what}, not a TOML {kind}", key.get_ref());
        self.at(value.span()).error(message)
    }

    fn invalid(&self, key: &Key, value: &Value, hint: impl Into<String>) -> Error {
        let message = format!("invalid value of `{}`", key.get_ref());
        self.at(value.span()).error(message).with_hint(hint)
    }

    fn table<'v, 'i>(&self, key: &Key, value: &'v Value<'i>) -> Result<&'v DeTable<'i>> {
        match value.get_ref() {
            DeValue::Table(table) => Ok(table),
            _ => Err(self.expected(key, value, "a table")),
        }
    }

    /// `"auto"` or `"off"`.
    fn auto(&self, key: &Key, value: &Value) -> Result<Sourced<bool>> {
        let DeValue::String(word) = value.get_ref() else {
            return Err(self.expected(key, value, "\"auto\" or \"off\""));
        };
        let on = parse_auto(word);
        let hint = "use \"auto\" or \"off\"";
        let on = on.ok_or_else(|| self.invalid(key, value, hint))?;
        Ok(self.sourced(value, on))
    }

    fn flag(&self, key: &Key, value: &Value) -> Result<Sourced<bool>> {
        match value.get_ref() {
            DeValue::Boolean(flag) => Ok(self.sourced(value, *flag)),
            _ => Err(self.expected(key, value, "true or false")),
        }
    }

    fn count(&self, key: &Key, value: &Value) -> Result<u64> {
        let DeValue::Integer(integer) = value.get_ref() else {
            return Err(self.expected(key, value, "an unsigned integer"));
        };
        match u64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(count) => Ok(count),
            Err(_) => Err(self.invalid(key, value, "use an unsigned integer")),
        }
    }

    fn sourced<T>(&self, value: &Value, parsed: T) -> Sourced<T> {
        Sourced::new(parsed, self.at(value.span()).source())
    }

    /// The strings of a string or an array, each with its place.
    fn strings<'v>(&self, key: &Key, value: &'v Value) -> Result<Vec<(&'v str, At)>> {
        match value.get_ref() {
            DeValue::String(text) => Ok(vec![(text, self.at(value.span()))]),
            DeValue::Array(items) => {
                let strings = items.iter().map(|item| match item.get_ref() {
                    DeValue::String(text) => Ok((&**text, self.at(item.span()))),
                    _ => Err(self.expected(key, item, "made of strings")),
                });
                strings.collect()
            }
            _ => Err(self.expected(key, value, "a string or an array of strings")),
        }
    }

    fn route(&self, key: &Key, value: &Value) -> Result<Route> {
        let mut selectors = Vec::new();
        for (text, at) in self.strings(key, value)? {
            for part in text.split('|') {
                Selector::parse(part, self.names)
                    .and_then(|selector| push_unique(&mut selectors, selector))
                    .map_err(|error| at.selector_error(error))?;
            }
        }
        if selectors.is_empty() {
            let hint = "name at least one backend, or remove the key";
            return Err(self.invalid(key, value, hint));
        }
        Ok(self.sourced(value, selectors))
    }

    fn vendors(&self, key: &Key, value: &Value) -> Result<Sourced<Vec<Arc<str>>>> {
        let mut vendors: Vec<Arc<str>> = Vec::new();
        for (name, at) in self.strings(key, value)? {
            if !valid_name(name) {
                return Err(at.error(format!("`{name}` is not the name of a vendor")));
            }
            let vendor = self.names.canonical(name);
            let vendor = vendor.map_err(|several| at.selector_error(several.into()))?;
            if !vendors.contains(&vendor) {
                vendors.push(vendor);
            }
        }
        Ok(self.sourced(value, vendors))
    }
}

/// The entries in the order of the text, which the parser does not keep.
fn entries<'v, 'i>(table: &'v DeTable<'i>) -> Vec<(&'v Key<'i>, &'v Value<'i>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

fn parse(includes: &mut Includes, text: &Text) -> Result<Document> {
    let root = DeTable::parse(text.text).map_err(|error| {
        let at = text.at(error.span().unwrap_or(0..0));
        at.error(format!("not valid TOML: {}", error.message()))
            .with_hint("strings need quotes, and each key may appear once")
    })?;
    let mut document = Document::default();
    let mut own = Document::default();
    for (key, value) in entries(root.get_ref()) {
        match &**key.get_ref() {
            "include" => {
                for (path, at) in text.strings(key, value)? {
                    document.overlay(read(includes, &at.relative(path), Some(&at))?);
                }
            }
            "policy" => policy(text, text.table(key, value)?, &mut own.layer)?,
            "ops" => ops(text, text.table(key, value)?, &mut own.layer)?,
            "host" => host(text, text.table(key, value)?, &mut own.host)?,
            _ => {
                let keys = ["include", "policy", "ops", "host"];
                return Err(text.unknown_key(key, "flagos.toml", &keys));
            }
        }
    }
    document.overlay(own);
    Ok(document)
}

/// Whether the word of a configuration turns something on; `None` for a word that is neither `auto` nor `off`.
pub(super) fn parse_auto(word: &str) -> Option<bool> {
    [true, false].into_iter().find(|&on| auto_word(on) == word)
}

pub(super) fn auto_word(on: bool) -> &'static str {
    if on { "auto" } else { "off" }
}

fn policy(text: &Text, table: &DeTable, layer: &mut Layer) -> Result<()> {
    for (key, value) in entries(table) {
        match &**key.get_ref() {
            "order" => layer.order = Some(text.route(key, value)?),
            "strict" => layer.strict = Some(text.flag(key, value)?),
            "log_dispatch" => layer.log_dispatch = Some(text.flag(key, value)?),
            "log_fallback" => layer.log_fallback = Some(text.flag(key, value)?),
            "graphs" => layer.graphs = Some(text.auto(key, value)?),
            "queue" => layer.queue = Some(text.auto(key, value)?),
            "deny_vendors" => layer.deny_vendors = Some(text.vendors(key, value)?),
            "allow_vendors" => layer.allow_vendors = Some(text.vendors(key, value)?),
            "max_cpu_fallback" => {
                let limit = match value.get_ref() {
                    DeValue::String(word) if word == "unlimited" => None,
                    DeValue::Integer(_) => Some(text.count(key, value)?),
                    _ => {
                        let what = "an unsigned integer or \"unlimited\"";
                        return Err(text.expected(key, value, what));
                    }
                };
                layer.max_cpu_fallback = Some(text.sourced(value, limit));
            }
            _ => {
                let keys = [
                    "order",
                    "strict",
                    "max_cpu_fallback",
                    "deny_vendors",
                    "allow_vendors",
                    "log_dispatch",
                    "log_fallback",
                    "graphs",
                    "queue",
                ];
                return Err(text.unknown_key(key, "[policy]", &keys));
            }
        }
    }
    Ok(())
}

fn ops(text: &Text, table: &DeTable, layer: &mut Layer) -> Result<()> {
    for (key, value) in entries(table) {
        let at = text.at(key.span());
        if let DeValue::Table(_) = value.get_ref() {
            // `add.Tensor = "cpu"` without quotes is a dotted key: the table `add` with `Tensor`.
            return Err(at
                .error(format!("`{}` is a table", key.get_ref()))
                .with_hint("quote names that contain a dot: \"add.Tensor\" = \"cpu\""));
        }
        let pattern = OpPattern::parse(key.get_ref()).map_err(|error| at.name_error(&error))?;
        if layer.ops.iter().any(|(known, _)| *known == pattern) {
            return Err(at
                .error(format!("`{pattern}` is routed twice in [ops]"))
                .with_hint("`mm` and `aten::mm` are the same operator: keep one"));
        }
        layer.ops.push((pattern, text.route(key, value)?));
    }
    Ok(())
}

fn host(text: &Text, table: &DeTable, host: &mut HostSettings) -> Result<()> {
    for (key, value) in entries(table) {
        match &**key.get_ref() {
            "devices" => {
                let devices = env::valid_devices(text.count(key, value)?);
                host.devices = Some(devices.map_err(|hint| text.invalid(key, value, hint))?);
            }
            "memory" => {
                let bytes = match value.get_ref() {
                    DeValue::String(size) => env::parse_bytes(size),
                    _ => Some(text.count(key, value)?),
                };
                let hint = "use a number of bytes, or a text such as \"512MiB\"";
                host.memory = Some(bytes.ok_or_else(|| text.invalid(key, value, hint))?);
            }
            "seed" => host.seed = Some(text.count(key, value)?),
            "delay_us" => host.delay_us = Some(text.count(key, value)?),
            "fault" => {
                let DeValue::String(faults) = value.get_ref() else {
                    return Err(text.expected(key, value, "a string"));
                };
                let faults = env::parse_faults(faults);
                host.faults = faults.map_err(|hint| text.invalid(key, value, hint))?;
            }
            _ => {
                let keys = ["devices", "memory", "seed", "delay_us", "fault"];
                return Err(text.unknown_key(key, "[host]", &keys));
            }
        }
    }
    Ok(())
}
