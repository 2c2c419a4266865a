//! The variables of TransformerEngine-FL.

use flagos_core::descriptions::Names;
use flagos_core::env::{self, Env, Var};
use flagos_core::policy::{AdapterEnv, Layer, Source, Sourced};
use flagos_core::{Error, Result};

use crate::NAMESPACE;
use crate::selection::{Prefer, Selection, hint, token};

inventory::submit! {
    AdapterEnv { adapter: NAMESPACE, layer }
}

/// The settings of the variables that do not concern routing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Modules to import for their implementations.
    pub plugin_modules: Vec<String>,
    /// Whether TransformerEngine's own kernels are left out.
    pub skip_native: bool,
    /// Whether failures fall back as in TransformerEngine-FL.
    pub compat: bool,
    /// The lowest level of lines that are printed.
    pub log_level: &'static str,
    /// Whether `TE_FL_STRICT` is `0`, the only value that TransformerEngine-FL checks for.
    pub strict_is_off: bool,
}

const LEVELS: [&str; 5] = ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"];

fn layer(env: &Env, names: &Names) -> Result<Option<Layer>> {
    let selection = selection(env, names)?;
    // The other variables are checked too, so that a mistake shows wherever the configuration is read.
    settings(env)?;
    if selection.is_empty() {
        Ok(None)
    } else {
        selection.layer(names).map(Some)
    }
}

/// Reads the variables about routing.
///
/// # Errors
/// [`flagos_core::ErrorKind::Config`] that names the variable and its valid values.
pub fn selection(env: &Env, names: &Names) -> Result<Selection> {
    let strict = env.flag(&env::TE_STRICT)?;
    Ok(Selection {
        prefer: prefer(env)?,
        strict: strict.map(|strict| Sourced::new(strict, of(&env::TE_STRICT))),
        per_op: per_op(env, names)?,
        deny_vendors: vendors(env, &env::TE_DENY_VENDORS)?,
        allow_vendors: vendors(env, &env::TE_ALLOW_VENDORS)?,
    })
}

/// Reads the variables that do not concern routing.
///
/// # Errors
/// [`flagos_core::ErrorKind::Config`] that names the variable and its valid values.
pub fn settings(env: &Env) -> Result<Settings> {
    let level = match env.get(env::TE_LOG_LEVEL.name) {
        None => "INFO",
        Some(text) => {
            let wanted = text.trim().to_ascii_uppercase();
            let found = LEVELS.into_iter().find(|level| *level == wanted);
            found.ok_or_else(|| invalid(&env::TE_LOG_LEVEL, text, hint(&wanted, &LEVELS)))?
        }
    };
    Ok(Settings {
        plugin_modules: list(env, &env::TE_PLUGIN_MODULES),
        skip_native: env.flag(&env::TE_SKIP_NATIVE)?.unwrap_or(false),
        compat: env.flag(&env::TE_COMPAT)?.unwrap_or(false),
        log_level: level,
        strict_is_off: env.get(env::TE_STRICT.name) == Some("0"),
    })
}

fn prefer(env: &Env) -> Result<Option<Sourced<Prefer>>> {
    // The older variable is read too, so that a mistake in it is reported although the newer one decides.
    let older = env.flag(&env::TE_PREFER_VENDOR)?;
    if let Some(word) = env.get(env::TE_PREFER.name) {
        let prefer = Prefer::parse(word).map_err(|hint| invalid(&env::TE_PREFER, word, hint))?;
        return Ok(Some(Sourced::new(prefer, of(&env::TE_PREFER))));
    }
    Ok(older.map(|vendor| {
        let prefer = if vendor {
            Prefer::Vendor
        } else {
            Prefer::Flagos
        };
        Sourced::new(prefer, of(&env::TE_PREFER_VENDOR))
    }))
}

fn per_op(env: &Env, names: &Names) -> Result<Vec<(String, Sourced<Vec<String>>)>> {
    let var = &env::TE_PER_OP;
    let mut orders: Vec<(String, Sourced<Vec<String>>)> = Vec::new();
    let text = env.get(var.name).unwrap_or_default();
    for part in text
        .split(';')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        let Some((op, order)) = part.split_once('=') else {
            return Err(invalid(
                var,
                part,
                "write it like `rmsnorm_fwd=vendor:acme|flagos`",
            ));
        };
        let op = op.trim();
        if op.is_empty() {
            return Err(invalid(var, part, "put the name of an operator before `=`"));
        }
        if orders.iter().any(|(known, _)| known == op) {
            return Err(invalid(var, part, format!("give `{op}` one order")));
        }
        let order: Vec<_> = order
            .split('|')
            .map(|text| text.trim().to_owned())
            .collect();
        for text in &order {
            token(text, names)
                .map_err(|error| invalid(var, part, error.hint().unwrap_or_default()))?;
        }
        orders.push((op.to_owned(), Sourced::new(order, of(var))));
    }
    Ok(orders)
}

fn vendors(env: &Env, var: &Var) -> Result<Option<Sourced<Vec<String>>>> {
    let names = list(env, var);
    let valid = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
    if let Some(wrong) = names.iter().find(|name| !name.bytes().all(valid)) {
        return Err(invalid(
            var,
            wrong,
            "write names of vendors, separated by commas: `host,acme`",
        ));
    }
    // A list of only commas is an error: it means neither no vendor nor every vendor.
    if names.is_empty() && env.get(var.name).is_some() {
        let text = env.get(var.name).unwrap_or_default();
        return Err(invalid(var, text, "name at least one vendor, or unset it"));
    }
    Ok((!names.is_empty()).then(|| Sourced::new(names, of(var))))
}

fn list(env: &Env, var: &Var) -> Vec<String> {
    let text = env.get(var.name).unwrap_or_default();
    let names = text
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

fn of(var: &Var) -> Source {
    Source::env(var.name)
}

fn invalid(var: &Var, text: &str, hint: impl Into<String>) -> Error {
    let message = format!("`{text}` is not a valid value of {}", var.name);
    Error::config("environment", message).with_hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Selection> {
        selection(&Env::from_pairs(pairs.iter().copied()), &Names::built_in())
    }

    #[test]
    fn the_documented_meaning_is_what_happens() {
        let read = read(&[
            ("TE_FL_PREFER", "Reference"),
            ("TE_FL_PREFER_VENDOR", "1"),
            ("TE_FL_STRICT", "1"),
            ("TE_FL_DENY_VENDORS", "rocm, acme"),
            ("TE_FL_ALLOW_VENDORS", "nvidia"),
            (
                "TE_FL_PER_OP",
                "rmsnorm_fwd=vendor:acme|flagos; gelu = reference ;",
            ),
        ]);
        let read = read.expect("valid");
        assert_eq!(
            read.prefer,
            Some(Sourced::new(Prefer::Reference, Source::env("TE_FL_PREFER")))
        );
        assert_eq!(read.strict.map(|s| s.value), Some(true));
        assert_eq!(
            read.deny_vendors.map(|s| s.value),
            Some(vec!["rocm".into(), "acme".into()])
        );
        assert_eq!(
            read.allow_vendors.map(|s| s.value),
            Some(vec!["nvidia".into()])
        );
        assert_eq!(read.per_op[0].1.value, ["vendor:acme", "flagos"]);
        assert_eq!(read.per_op[1].0, "gelu");
    }

    #[test]
    fn nothing_set_says_nothing() {
        assert!(read(&[]).expect("valid").is_empty());
        assert!(
            layer(&Env::from_pairs([("TE_FL_PREFER", "")]), &Names::built_in())
                .expect("valid")
                .is_none()
        );
    }

    #[test]
    fn mistakes_name_the_variable_and_what_is_valid() {
        let lines: Vec<_> = [
            ("TE_FL_PREFER", "vendro"),
            ("TE_FL_PREFER_VENDOR", "maybe"),
            ("TE_FL_STRICT", "strict"),
            ("TE_FL_PER_OP", "rmsnorm_fwd"),
            ("TE_FL_PER_OP", "=flagos"),
            ("TE_FL_PER_OP", "gelu=flagoss"),
            ("TE_FL_PER_OP", "gelu="),
            ("TE_FL_PER_OP", "gelu=flagos;gelu=vendor"),
            ("TE_FL_DENY_VENDORS", "rocm;dcu"),
            ("TE_FL_ALLOW_VENDORS", ","),
            ("TEFL_LOG_LEVEL", "LOUD"),
            ("TE_FL_COMPAT", "2"),
        ]
        .into_iter()
        .map(|pair| {
            layer(&Env::from_pairs([pair]), &Names::built_in())
                .expect_err(pair.1)
                .to_string()
        })
        .collect();
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn the_layer_reaches_the_configuration_of_the_core() {
        let env = Env::from_pairs([("TE_FL_PREFER", "vendor")]);
        let router = flagos_core::router::Router::new(
            move || env.clone(),
            std::collections::BTreeMap::new(),
        );
        let policy = router.policy_over(None).expect("valid");
        let order = policy.namespaces[NAMESPACE].order.as_ref().expect("set");
        assert_eq!(order.source.to_string(), "the variable TE_FL_PREFER");
    }
}
