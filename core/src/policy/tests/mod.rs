//! The policy's specification.

mod composite;
mod conf_grammar;
mod configuration;
mod environment;
mod explain;
mod lock_file;
mod namespaces;
mod properties;
mod resolution;
mod selectors;
mod toml_grammar;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::*;
use crate::descriptions::Names;
use crate::env::Env;
use crate::registry::{Callable, Implementation, Kind, Registry};
use crate::{Error, Result};

/// Configuration files in memory.
fn files<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> BTreeMap<PathBuf, String> {
    let owned = files
        .into_iter()
        .map(|(path, text)| (PathBuf::from(path), text.to_owned()));
    owned.collect()
}

fn toml(text: &str) -> Result<Document> {
    read_flagos_toml(
        &files([("flagos.toml", text)]),
        Path::new("flagos.toml"),
        &Names::built_in(),
    )
}

fn conf(text: &str) -> Result<Layer> {
    read_backends_conf(
        &files([("backends.conf", text)]),
        Path::new("backends.conf"),
        &Names::built_in(),
    )
}

fn env<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Env {
    Env::from_pairs(pairs)
}

/// A few operators on a machine with a CUDA chip, FlagGems, and a function of the user.
fn registry() -> Registry {
    let mut registry = Registry::new();
    let mut register = |ops: &[&str], implementation: Implementation| {
        let implementation = Arc::new(implementation);
        for op in ops {
            let registered = registry.register(op, Arc::clone(&implementation));
            registered.expect("a fresh implementation");
        }
    };
    let all = ["mm", "mm.out", "add.Tensor", "add.Scalar", "__and__.Tensor"];
    let flaggems = Implementation::new("flaggems.python", Kind::Flagos, "flaggems");
    register(
        &["mm", "add.Tensor"],
        flaggems.callable(Callable::Foreign(11)),
    );
    let wrong = Implementation::new("flaggems.python", Kind::Flagos, "flaggems");
    register(&["mm.out"], wrong.unavailable("wrong for views"));
    register(
        &all,
        Implementation::new("cuda.native", Kind::Vendor, "cuda").vendor("cuda"),
    );
    register(
        &all,
        Implementation::new("metax.native", Kind::Vendor, "metax").vendor("metax"),
    );
    let cpu = Implementation::new("cpu.reference", Kind::Reference, "cpu");
    register(&all, cpu.callable(Callable::CpuFallback));
    let mine = Implementation::new("user.mm", Kind::Flagos, "flagos_python").priority(-1);
    register(&["mm"], mine.callable(Callable::Foreign(12)));
    register(
        &["te::rmsnorm_fwd"],
        Implementation::new("te.reference", Kind::Reference, "cpu"),
    );
    registry
}

/// A policy of one `flagos.toml` on a machine whose active vendor is CUDA.
fn policy(text: &str) -> Policy {
    let layer = toml(text).expect("valid flagos.toml").layer;
    Policy::from_layers([&cuda(), &layer])
}

fn cuda() -> Layer {
    Layer {
        vendor: Some(Sourced::built_in("cuda".into())),
        ..Layer::default()
    }
}

fn resolve(text: &str) -> Result<Plan> {
    resolve_all(&registry(), &policy(text))
}

fn winner(plan: &Plan, op: &str) -> Option<String> {
    let entry = plan.find(op).expect("a known operator");
    entry.winner().map(|winner| winner.impl_id.to_string())
}

/// Errors of a table of cases, as one text for a snapshot.
fn errors<T>(cases: &[&str], parse: impl Fn(&str) -> Result<T>) -> String {
    let line = |case: &&str| {
        let error: Error = match parse(case) {
            Ok(_) => panic!("accepted: {case}"),
            Err(error) => error,
        };
        format!("{}\n    {error}", case.trim_end().replace('\n', " ⏎ "))
    };
    cases.iter().map(line).collect::<Vec<_>>().join("\n")
}
