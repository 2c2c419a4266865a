//! The registry's and the router's specification.

mod adapters;
mod contexts;
mod counters;
mod names;
mod publication;
mod router;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use super::*;
use crate::env::Env;
use crate::policy::Files;
use crate::registry::{Ordering, *};

/// A router whose variables and files a test can change.
struct Bench {
    router: Router,
    vars: Arc<Mutex<Vec<(String, String)>>>,
    files: Arc<Mutex<BTreeMap<PathBuf, String>>>,
}

struct Shared(Arc<Mutex<BTreeMap<PathBuf, String>>>);

impl Files for Shared {
    fn read(&self, path: &std::path::Path) -> std::io::Result<String> {
        self.0.lock().read(path)
    }

    fn exists(&self, path: &std::path::Path) -> bool {
        self.0.lock().exists(path)
    }
}

impl Bench {
    /// `mm` and `add` with a FlagGems, a native and a reference implementation.
    fn new() -> Self {
        let bench = Self::empty();
        let gems = Implementation::new("flaggems.python", Kind::Flagos, "flaggems");
        let gems = gems.callable(Callable::Foreign(11));
        let native = Implementation::new("cpu.native", Kind::Vendor, "cpu").vendor("host");
        let reference = Implementation::new("cpu.reference", Kind::Reference, "cpu");
        let reference = reference.callable(Callable::CpuFallback);
        for implementation in [gems, native, reference] {
            let names = ["mm", "add.Tensor", "add.Scalar"];
            let registered = bench.router.register_all("aten", names, implementation);
            registered.expect("fresh implementations");
        }
        bench.router.set_active_vendor("host").expect("valid");
        bench
    }

    fn empty() -> Self {
        let vars: Arc<Mutex<Vec<(String, String)>>> = Arc::default();
        let files: Arc<Mutex<BTreeMap<PathBuf, String>>> = Arc::default();
        let snapshot = Arc::clone(&vars);
        let env = move || Env::from_pairs(snapshot.lock().iter().cloned());
        Self {
            router: Router::new(env, Shared(Arc::clone(&files))),
            vars,
            files,
        }
    }

    fn set(&self, name: &str, value: &str) {
        let mut vars = self.vars.lock();
        vars.retain(|(known, _)| known != name);
        vars.push((name.to_owned(), value.to_owned()));
    }

    fn write(&self, path: &str, text: &str) {
        self.files.lock().insert(path.into(), text.to_owned());
    }

    fn decision(&self, op: &str) -> Decision {
        self.router.slot(op).expect("a valid name").load()
    }

    fn winner(&self, op: &str) -> Option<String> {
        self.router.explain(op).expect("a known operator").winner
    }
}
