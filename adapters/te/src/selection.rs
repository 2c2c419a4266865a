//! A selection policy of TransformerEngine-FL, and its translation into a layer of the core.

use std::fmt;
use std::sync::Arc;

use flagos_core::descriptions::Names;
use flagos_core::policy::{Layer, OpPattern, Scoped, Selector, Source, Sourced};
use flagos_core::registry::{Kind, OpName};
use flagos_core::{Error, Result};

use crate::NAMESPACE;
use crate::vendors::canonical;

/// The kind of implementation that comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefer {
    /// `flagos`, then `vendor`, then `reference`.
    Flagos,
    /// `vendor`, then `flagos`, then `reference`.
    Vendor,
    /// `reference`, then `flagos`, then `vendor`.
    Reference,
}

impl Prefer {
    /// Every preference.
    pub const ALL: [Self; 3] = [Self::Flagos, Self::Vendor, Self::Reference];

    /// The word for the preference.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Flagos => "flagos",
            Self::Vendor => "vendor",
            Self::Reference => "reference",
        }
    }

    /// Reads the word, in upper or lower case.
    ///
    /// # Errors
    /// A hint at the valid words, for any other word.
    pub fn parse(word: &str) -> std::result::Result<Self, String> {
        let wanted = word.trim().to_ascii_lowercase();
        let found = Self::ALL.into_iter().find(|p| p.as_str() == wanted);
        found.ok_or_else(|| hint(&wanted, &Self::ALL.map(Self::as_str)))
    }

    fn order(self) -> Vec<Selector> {
        let kinds = match self {
            Self::Flagos => [Kind::Flagos, Kind::Vendor, Kind::Reference],
            Self::Vendor => [Kind::Vendor, Kind::Flagos, Kind::Reference],
            Self::Reference => [Kind::Reference, Kind::Flagos, Kind::Vendor],
        };
        kinds.map(Selector::Kind).to_vec()
    }
}

impl fmt::Display for Prefer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The hint `did you mean ...?` where one word is similar, else the list of all words.
pub(crate) fn hint(wanted: &str, words: &[&str]) -> String {
    let near = words
        .iter()
        .map(|word| (strsim::osa_distance(wanted, word), *word));
    match near.min() {
        Some((distance, word)) if distance <= (wanted.chars().count() / 3).max(1) => {
            format!("did you mean `{word}`?")
        }
        _ => format!(
            "use {}",
            words
                .iter()
                .map(|w| format!("`{w}`"))
                .collect::<Vec<_>>()
                .join(", ")
        ),
    }
}

/// An alternative of an order: `flagos`, `vendor`, `reference`, `vendor:<name>`, `impl:<id>`.
///
/// # Errors
/// [`flagos_core::ErrorKind::Config`] that lists the valid alternatives.
pub fn token(text: &str, names: &Names) -> Result<Selector> {
    let text = text.trim();
    let parsed = match text.split_once(':') {
        Some(("vendor", name)) => {
            let vendor = canonical(name, names)?;
            Selector::parse(&format!("vendor:{vendor}"), names).ok()
        }
        Some(("impl", _)) => Selector::parse(text, names).ok(),
        Some(_) => None,
        None => Kind::parse(&text.to_ascii_lowercase()).map(Selector::Kind),
    };
    parsed.ok_or_else(|| {
        let words = [
            "flagos",
            "vendor",
            "reference",
            "vendor:<name>",
            "impl:<id>",
        ];
        Error::config("order", format!("`{text}` is not an alternative"))
            .with_hint(hint(text, &words))
    })
}

/// The qualified name of the operator that a name without namespace means.
///
/// # Errors
/// [`flagos_core::ErrorKind::InvalidArgument`] for a text that cannot be a name.
pub fn operator(name: &str) -> Result<String> {
    let qualified = if name.contains("::") {
        name.to_owned()
    } else {
        format!("{NAMESPACE}::{}", name.trim())
    };
    OpName::parse(&qualified)?;
    Ok(qualified)
}

/// The settings of a policy, each with its source. Weaker layers decide settings that are `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// The order for operators without one of their own.
    pub prefer: Option<Sourced<Prefer>>,
    /// Whether a failure is raised instead of trying the next implementation.
    pub strict: Option<Sourced<bool>>,
    /// The orders of single operators, as names without namespace with their alternatives.
    pub per_op: Vec<(String, Sourced<Vec<String>>)>,
    /// Vendors that must not serve, as they were written.
    pub deny_vendors: Option<Sourced<Vec<String>>>,
    /// The only vendors that may serve, as they were written.
    pub allow_vendors: Option<Sourced<Vec<String>>>,
}

impl Selection {
    /// Whether the policy has no setting.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The policy as a layer of the core, for the operators of this adapter alone.
    ///
    /// # Errors
    /// [`flagos_core::ErrorKind::Config`] that names the source of a setting that is not valid.
    pub fn layer(&self, names: &Names) -> Result<Layer> {
        let vendors = |list: &Option<Sourced<Vec<String>>>| {
            let read = |list: &Sourced<Vec<String>>| {
                let vendors = list.value.iter().map(|name| canonical(name, names));
                let vendors = vendors.collect::<Result<Vec<Arc<str>>>>()?;
                Ok::<_, Error>(Sourced::new(vendors, list.source.clone()))
            };
            list.as_ref().map(read).transpose()
        };
        let mut layer = Layer::default();
        let scoped = Scoped {
            order: self
                .prefer
                .as_ref()
                .map(|p| Sourced::new(p.value.order(), p.source.clone())),
            deny_vendors: vendors(&self.deny_vendors)?,
            allow_vendors: vendors(&self.allow_vendors)?,
            strict: self.strict.clone(),
        };
        layer.namespaces.insert(NAMESPACE.into(), scoped);
        for (op, order) in &self.per_op {
            let at = |error: Error| located(&error, &order.source, op);
            let mut selectors = Vec::new();
            for text in &order.value {
                let selector = token(text, names).map_err(at)?;
                if !selectors.contains(&selector) {
                    selectors.push(selector);
                }
            }
            if selectors.is_empty() {
                let error = Error::config("order", "no alternative is given");
                return Err(at(
                    error.with_hint("write it like `rmsnorm_fwd=vendor:acme|flagos`")
                ));
            }
            let pattern = OpPattern::Exact(operator(op).map_err(at)?);
            layer.route(pattern, selectors, order.source.clone());
        }
        Ok(layer)
    }
}

/// An error about one operator's order, with the order's source.
fn located(error: &Error, source: &Source, op: &str) -> Error {
    let located = Error::config("configuration", error.message())
        .with_context("at", source)
        .with_context("operator", op);
    match error.hint() {
        Some(hint) => located.with_hint(hint),
        None => located,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_those_of_transformer_engine_fl() {
        for (text, meant) in [
            ("flagos", "flagos"),
            (" vendor ", "vendor"),
            ("vendor:NVIDIA", "vendor:cuda"),
            ("impl:default.flagos_rs", "impl:default.flagos_rs"),
        ] {
            assert_eq!(
                token(text, &Names::built_in()).expect(text).to_string(),
                meant
            );
        }
        for (text, expected) in [
            ("flagoss", "did you mean `flagos`?"),
            ("cuda", "use `flagos`"),
            ("vendor:", "did you mean `vendor`?"),
            ("", "use `flagos`"),
        ] {
            let hint = token(text, &Names::built_in())
                .expect_err(text)
                .hint()
                .unwrap_or_default()
                .to_owned();
            assert!(hint.starts_with(expected), "{text}: {hint}");
        }
    }

    #[test]
    fn a_layer_is_about_this_namespace_alone() {
        let source = Source::env("X");
        let selection = Selection {
            prefer: Some(Sourced::new(Prefer::Vendor, source.clone())),
            deny_vendors: Some(Sourced::new(vec!["NVIDIA".into()], source.clone())),
            per_op: vec![(
                "gelu".into(),
                Sourced::new(vec!["reference".into()], source),
            )],
            ..Selection::default()
        };
        let layer = selection.layer(&Names::built_in()).expect("valid");
        assert!(layer.order.is_none() && layer.deny_vendors.is_none());
        let scoped = &layer.namespaces[NAMESPACE];
        assert_eq!(
            scoped
                .order
                .as_ref()
                .map(|o| o.value[0].to_string())
                .as_deref(),
            Some("vendor")
        );
        assert_eq!(
            &*scoped.deny_vendors.as_ref().expect("set").value[0],
            "cuda"
        );
        assert_eq!(layer.ops[0].0.to_string(), "te::gelu");
    }
}
