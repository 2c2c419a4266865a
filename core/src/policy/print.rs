//! Writing layers in the grammars they are read from.

use std::fmt::Write as _;
use std::sync::Arc;

use super::flagos_toml::auto_word;
use super::layer::Layer;
use super::pattern::OpPattern;
use super::selector::Selector;
use crate::registry::DEFAULT_NAMESPACE;

/// A layer as `flagos.toml` text. The active vendor, `FLAGOS_DISABLE_FLAGGEMS_PY` and routes from
/// variables have no form in that file and are left out.
#[must_use]
pub fn to_toml(layer: &Layer) -> String {
    let mut text = String::from("[policy]\n");
    // Writing to a String cannot fail. Names and selectors contain nothing that TOML would escape.
    if let Some(order) = &layer.order {
        let _ = writeln!(text, "order = {}", selector_array(&order.value));
    }
    if let Some(strict) = &layer.strict {
        let _ = writeln!(text, "strict = {}", strict.value);
    }
    if let Some(limit) = &layer.max_cpu_fallback {
        let _ = match limit.value {
            Some(count) => writeln!(text, "max_cpu_fallback = {count}"),
            None => writeln!(text, "max_cpu_fallback = \"unlimited\""),
        };
    }
    if let Some(vendors) = &layer.deny_vendors {
        let _ = writeln!(text, "deny_vendors = {}", vendor_array(&vendors.value));
    }
    if let Some(vendors) = &layer.allow_vendors {
        let _ = writeln!(text, "allow_vendors = {}", vendor_array(&vendors.value));
    }
    if let Some(log) = &layer.log_dispatch {
        let _ = writeln!(text, "log_dispatch = {}", log.value);
    }
    if let Some(log) = &layer.log_fallback {
        let _ = writeln!(text, "log_fallback = {}", log.value);
    }
    if let Some(graphs) = &layer.graphs {
        let _ = writeln!(text, "graphs = \"{}\"", auto_word(graphs.value));
    }
    if let Some(queue) = &layer.queue {
        let _ = writeln!(text, "queue = \"{}\"", auto_word(queue.value));
    }
    text.push_str("\n[ops]\n");
    for (pattern, route) in &layer.ops {
        if !matches!(pattern, OpPattern::Variable(_)) {
            let _ = writeln!(text, "\"{pattern}\" = {}", selector_array(&route.value));
        }
    }
    text
}

/// The routes of a layer as `backends.conf` text, with the order for all of torch's operators. Other settings
/// are left out.
#[must_use]
pub fn to_backends_conf(layer: &Layer) -> String {
    let mut text = String::new();
    let torchs = layer.namespaces.get(DEFAULT_NAMESPACE);
    if let Some(order) = torchs.and_then(|torchs| torchs.order.as_ref()) {
        let _ = writeln!(text, "* = {}", join(&order.value));
    }
    for (pattern, route) in &layer.ops {
        if !matches!(pattern, OpPattern::Variable(_)) {
            let _ = writeln!(text, "{pattern} = {}", join(&route.value));
        }
    }
    text
}

/// Selectors as one text: `vendor|cpu`.
pub(crate) fn join(selectors: &[Selector]) -> String {
    let selectors: Vec<_> = selectors.iter().map(ToString::to_string).collect();
    selectors.join("|")
}

fn selector_array(selectors: &[Selector]) -> String {
    let quoted: Vec<_> = selectors.iter().map(|s| format!("\"{s}\"")).collect();
    format!("[{}]", quoted.join(", "))
}

fn vendor_array(vendors: &[Arc<str>]) -> String {
    let quoted: Vec<_> = vendors.iter().map(|v| format!("\"{v}\"")).collect();
    format!("[{}]", quoted.join(", "))
}
