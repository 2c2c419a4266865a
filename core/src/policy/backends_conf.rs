//! The grammar of `backends.conf`, inherited from Torch-FL (which was PyTorch-Plugin-FL).
//!
//! ```text
//! # a comment
//! include site.conf            # or: include = site.conf
//! mm = cpu                     # the overload without a name
//! add.Tensor = vendor | cpu    # the first usable one
//! softmax.* = flaggems         # every overload
//! * = acme | cpu               # by the vendor's name; every operator of torch without a line of its own
//! sin = none                   # as without a line: the operator follows the order
//! ```
//!
//! As there, a later line beats an earlier one for the same operator. Unlike there, a line
//! that is not understood is an error.

use std::path::Path;

use super::file::{At, Includes};
use super::layer::Layer;
use super::pattern::OpPattern;
use super::selector::Selector;
use super::source::Sourced;
use crate::Result;
use crate::registry::DEFAULT_NAMESPACE;

pub(crate) fn read(includes: &mut Includes, path: &Path, by: Option<&At>) -> Result<Layer> {
    includes.with_file(path, by, parse)
}

fn parse(includes: &mut Includes, start: &At, text: &str) -> Result<Layer> {
    let mut layer = Layer::default();
    for (index, line) in text.lines().enumerate() {
        let at = start.line(index + 1);
        // Some editors put a byte order mark before the first line.
        let line = line.trim_start_matches('\u{feff}');
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        if let Some(path) = included(line) {
            if path.is_empty() {
                return Err(at
                    .error("`include` without a path")
                    .with_hint("write `include other.conf`"));
            }
            layer.overlay(read(includes, &at.relative(path), Some(&at))?);
            continue;
        }
        let Some((op, selectors)) = line.split_once('=') else {
            return Err(at
                .error(format!("`{line}` is not a route"))
                .with_hint("write `operator = backend`, or `include other.conf`"));
        };
        if selectors.trim() == UNROUTED {
            let pattern = OpPattern::parse(op).map_err(|error| at.name_error(&error))?;
            layer.ops.retain(|(known, _)| *known != pattern);
            continue;
        }
        let selectors = Selector::parse_list(selectors, includes.names)
            .map_err(|error| at.selector_error(error))?;
        if op.trim() == "*" {
            let torchs = layer.namespaces.entry(DEFAULT_NAMESPACE.into());
            torchs.or_default().order = Some(Sourced::new(selectors, at.source()));
            continue;
        }
        let pattern = OpPattern::parse(op).map_err(|error| at.name_error(&error))?;
        layer.route(pattern, selectors, at.source());
    }
    Ok(layer)
}

/// The words for operators without a route in files of Torch-FL.
const UNROUTED: &str = "none";

/// Operators that Torch-FL's files route and no adapter registers: torch calls them for devices of its own only.
const LEFT_TO_TORCH: [&str; 3] = [
    "_fused_rms_norm_backward",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_efficient_attention_backward",
];

/// Whether an operator is one of [`LEFT_TO_TORCH`], so that a route for it has no effect.
pub(super) fn is_left_to_torch(op: &str) -> bool {
    LEFT_TO_TORCH.contains(&op.trim_start_matches("aten::"))
}

/// The path of an include line, in either spelling.
fn included(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("include")?;
    if !rest.is_empty() && !rest.starts_with(|c: char| c.is_whitespace() || c == '=') {
        return None;
    }
    let rest = rest.trim_start();
    Some(rest.strip_prefix('=').unwrap_or(rest).trim())
}
