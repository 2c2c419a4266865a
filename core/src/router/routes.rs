//! Routes set by the program: the API layer and contexts.

use super::scope::Scope;
use super::state::{ContextToken, Router};
use crate::descriptions::Names;
use crate::policy::{self, Layer, OpPattern, Policy, Selector, Source, Sourced};
use crate::{Error, Result};

impl Router {
    /// Routes an operator, or every overload with `add.*`, until [`Router::clear_route`]. `selectors` are
    /// alternatives separated by `|`; explanations show `call` as the route's source.
    pub fn set_route(&self, op: &str, selectors: &str, call: &str) -> Result<()> {
        let (pattern, selectors) = parse_route(op, selectors, &*self.vendor_names()?)?;
        self.change(|state| {
            let mut single = Layer::default();
            single.route(pattern.clone(), selectors, Source::api(call));
            policy::check_layer(&state.registry, &single)?;
            state.api.ops.retain(|(known, _)| *known != pattern);
            state.api.overlay(single);
            Ok((state.scope_of([&pattern]), ()))
        })
    }

    /// Takes back [`Router::set_route`], for one operator or for all. Returns the number of routes removed.
    pub fn clear_route(&self, op: Option<&str>) -> Result<usize> {
        let wanted = op.map(OpPattern::parse).transpose()?;
        self.change(|state| {
            let all = std::mem::take(&mut state.api.ops);
            let keep = |pattern: &OpPattern| wanted.as_ref().is_some_and(|w| w != pattern);
            let (remaining, cleared): (Vec<_>, Vec<_>) =
                all.into_iter().partition(|(p, _)| keep(p));
            state.api.ops = remaining;
            let scope = state.scope_of(cleared.iter().map(|(pattern, _)| pattern));
            Ok((scope, cleared.len()))
        })
    }

    /// Changes other settings of the API layer, for example `|layer| layer.strict = ...`.
    pub fn update_api(&self, edit: impl FnOnce(&mut Layer)) -> Result<()> {
        self.change(|state| {
            edit(&mut state.api);
            Ok((Scope::All, ()))
        })
    }

    /// Puts a layer in the place of the layer of an adapter's variables; `None` takes it back.
    pub fn set_adapter_layer(&self, adapter: &'static str, layer: Option<Layer>) -> Result<()> {
        self.change(|state| {
            match layer {
                Some(layer) => drop(state.adapters.insert(adapter, layer)),
                None => drop(state.adapters.remove(adapter)),
            }
            let prefix = format!("{adapter}::");
            let ops = state.registry.iter();
            let ids = ops.filter(|(_, op)| op.name.starts_with(&prefix));
            Ok((Scope::Ops(ids.map(|(id, _)| id).collect()), ()))
        })
    }

    /// The policy in force, with another layer in the place of an adapter's where one is given.
    pub fn policy_over(&self, over: Option<(&str, &Layer)>) -> Result<Policy> {
        let mut state = self.state.lock();
        let config = self.load_config(&mut state)?;
        Ok(state.policy_over(&config, over))
    }

    /// Turns strict mode on or off, on top of files and variables.
    pub fn set_strict(&self, strict: bool) -> Result<()> {
        let written = if strict { "True" } else { "False" }; // as Python writes it
        let source = Source::api(&format!("flagos.set_strict({written})"));
        self.update_api(|layer| layer.strict = Some(Sourced::new(strict, source)))
    }

    /// Puts a layer of routes (operator, selectors) on top of all layers until [`Router::pop_context`].
    pub fn push_context<'a>(
        &self,
        routes: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<ContextToken> {
        let mut layer = Layer::default();
        let names = self.vendor_names()?;
        for (op, selectors) in routes {
            let (pattern, selectors) = parse_route(op, selectors, &names)?;
            layer.route(pattern, selectors, Source::Context);
        }
        self.change(|state| {
            policy::check_layer(&state.registry, &layer)?;
            state.last_token += 1;
            let token = ContextToken(state.last_token);
            let scope = state.scope_of(layer.ops.iter().map(|(pattern, _)| pattern));
            state.contexts.push((token, layer));
            Ok((scope, token))
        })
    }

    /// Removes a context. It may be anywhere in the stack, because contexts of several threads may overlap.
    pub fn pop_context(&self, token: ContextToken) -> Result<()> {
        self.change(|state| {
            let found = state.contexts.iter().position(|(known, _)| *known == token);
            let Some(at) = found else {
                let message = "this context is not active";
                return Err(Error::invalid_argument("pop_context", message)
                    .with_hint("pop each context once"));
            };
            let (_, layer) = state.contexts.remove(at);
            Ok((state.scope_of(layer.ops.iter().map(|(p, _)| p)), ()))
        })
    }
}

fn parse_route(op: &str, selectors: &str, names: &Names) -> Result<(OpPattern, Vec<Selector>)> {
    let pattern = OpPattern::parse(op)?;
    let selectors = Selector::parse_list(selectors, names).map_err(|error| {
        Error::config("set_route", error.message)
            .with_context("operator", &pattern)
            .with_hint(error.hint)
    })?;
    Ok((pattern, selectors))
}
