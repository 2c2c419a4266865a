//! The layer of the environment.

use super::flagos_toml::parse_auto;
use super::layer::Layer;
use super::pattern::OpPattern;
use super::selector::{Selector, valid_name};
use super::source::{Source, Sourced};
use crate::descriptions::Names;
use crate::env::{self, Env, Var};
use crate::{Error, Result};

/// Reads the variables about routing into a layer.
pub fn layer(env: &Env, names: &Names) -> Result<Layer> {
    let log = env.log()?;
    let mut layer = Layer {
        strict: sourced(&env::STRICT, env.flag(&env::STRICT)?),
        max_cpu_fallback: sourced(&env::MAX_CPU_FALLBACK, env.limit(&env::MAX_CPU_FALLBACK)?),
        log_dispatch: logged(env, &env::LOG_DISPATCH, log.dispatch)?,
        log_fallback: logged(env, &env::LOG_FALLBACK, log.fallback)?,
        graphs: auto(env, &env::GRAPHS)?,
        queue: auto(env, &env::QUEUE)?,
        disable_flaggems: disable_flaggems(env)?,
        vendor: vendor(env, names)?,
        ..Layer::default()
    };
    for (var, op, selectors) in env.op_routes() {
        if op.is_empty() || !op.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            let message = format!("`{var}` does not name an operator");
            return Err(Error::config("environment", message)
                .with_hint("write `.` as `__`, for example FLAGOS_OP_add__Tensor"));
        }
        let selectors = Selector::parse_list(selectors, names).map_err(|error| {
            Error::config("environment", error.message)
                .with_context("variable", var)
                .with_hint(error.hint)
        })?;
        layer.route(
            OpPattern::Variable(op.to_owned()),
            selectors,
            Source::env(var),
        );
    }
    Ok(layer)
}

fn sourced<T>(var: &Var, value: Option<T>) -> Option<Sourced<T>> {
    value.map(|value| Sourced::new(value, Source::env(var.name)))
}

/// A log that `var` turns on or off, or a word of `FLAGOS_LOG` on.
fn logged(env: &Env, var: &Var, word: bool) -> Result<Option<Sourced<bool>>> {
    let own = sourced(var, env.flag(var)?);
    Ok(own.or_else(|| sourced(&env::LOG, word.then_some(true))))
}

/// A variable that is `auto` or `off`.
fn auto(env: &Env, var: &Var) -> Result<Option<Sourced<bool>>> {
    let Some(word) = env.get(var.name) else {
        return Ok(None);
    };
    let on = parse_auto(word).ok_or_else(|| {
        Error::config(
            "environment",
            format!("`{word}` is neither `auto` nor `off`"),
        )
        .with_context("variable", var.name)
        .with_hint("use `auto` or `off`")
    })?;
    Ok(sourced(var, Some(on)))
}

fn disable_flaggems(env: &Env) -> Result<Option<Sourced<bool>>> {
    // The legacy switch has the opposite meaning. Where both are set, the current one decides.
    let legacy = env.flag(&env::USE_FLAGGEMS)?.map(|enabled| !enabled);
    let current = env.flag(&env::DISABLE_FLAGGEMS_PY)?;
    let current = sourced(&env::DISABLE_FLAGGEMS_PY, current);
    Ok(current.or_else(|| sourced(&env::USE_FLAGGEMS, legacy)))
}

fn vendor(env: &Env, names: &Names) -> Result<Option<Sourced<std::sync::Arc<str>>>> {
    let Some(name) = env.get(env::VENDOR.name) else {
        return Ok(None);
    };
    if !valid_name(name) {
        let message = format!("`{name}` is not the name of a vendor");
        return Err(Error::config("environment", message)
            .with_context("variable", env::VENDOR.name)
            .with_hint(format!("use the name of a vendor: {}", names.listed())));
    }
    // A name that means no vendor here, or several, is reported when the vendor is chosen.
    let vendor = names.canonical(name).unwrap_or_else(|_| name.into());
    Ok(sourced(&env::VENDOR, Some(vendor)))
}
