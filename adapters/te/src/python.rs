//! `flagos._core.te`: TransformerEngine's operators in the plan, for the package `te_fl`.
//!
//! A thread that waits for the router's lock releases the GIL, because a fork holds that lock ([`hold`]) while
//! Python prepares. A thread inside a registry of its own keeps the GIL, which the forking thread must have. So
//! a child inherits neither lock from a thread that it lacks.

use std::sync::Arc;

use flagos_bindings::errors::{IntoPython as _, to_python};
use flagos_bindings::{find_manifests, foreign};
use flagos_core::descriptions::Names;
use flagos_core::env::Env;
use flagos_core::policy::{Layer, Source, Sourced};
use flagos_core::router::global;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::selection::{Prefer, Selection};
use crate::store::{Store, describe, policy};
use crate::{NAMESPACE, selection, variables, vendors};

/// A policy, ready to stand in for the layer of the variables.
#[pyclass(frozen, name = "Layer", module = "flagos._core.te")]
struct PyLayer(Layer);

/// The implementations of the process, or of one registry.
#[pyclass(frozen, name = "Store", module = "flagos._core.te")]
struct PyStore(Store);

impl PyStore {
    /// Runs `work` on the store, without the GIL where it may wait for the router.
    fn inside<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&Store) -> T + Send) -> T {
        match &self.0 {
            Store::Process(_) => py.detach(|| work(&self.0)),
            Store::Own(_) => work(&self.0),
        }
    }
}

#[pymethods]
impl PyStore {
    #[new]
    fn new(py: Python<'_>, process: bool) -> PyResult<Self> {
        if process {
            py.detach(Store::process).into_python(py).map(Self)
        } else {
            find_manifests(py)?;
            py.detach(Store::own).into_python(py).map(Self)
        }
    }

    #[pyo3(signature = (op, impl_id, kind, r#fn, vendor=None, priority=0))]
    #[allow(clippy::too_many_arguments)] // a keyword each in Python
    fn register(
        &self,
        py: Python<'_>,
        op: &str,
        impl_id: &str,
        kind: &str,
        r#fn: Py<PyAny>,
        vendor: Option<&str>,
        priority: i32,
    ) -> PyResult<()> {
        // Kept before the registration, because from then on a dispatch may ask for the token.
        let names = names(py)?;
        let token = foreign::keep(r#fn);
        let registered = self.inside(py, |store| {
            let implementation = describe(impl_id, kind, vendor, priority, token, &names)?;
            store.register(op, implementation)
        });
        registered
            .inspect_err(|_| foreign::forget(token))
            .into_python(py)
    }

    fn unregister(&self, py: Python<'_>, op: &str, impl_id: &str) -> PyResult<()> {
        let taken = self.inside(py, |store| store.unregister(op, impl_id));
        if let Some(token) = taken.into_python(py)? {
            foreign::forget(token);
        }
        Ok(())
    }

    #[pyo3(signature = (op, impl_id, reason=None))]
    fn set_availability(
        &self,
        py: Python<'_>,
        op: &str,
        impl_id: &str,
        reason: Option<&str>,
    ) -> PyResult<()> {
        self.inside(py, |store| store.set_availability(op, impl_id, reason))
            .into_python(py)
    }

    /// `(usable, strict, blocked)`: the usable implementations' ids and tokens in order, whether a failure is
    /// raised, and the reason when no implementation is usable.
    #[pyo3(signature = (op, over=None))]
    #[allow(clippy::type_complexity)] // a tuple in Python
    fn rank(
        &self,
        py: Python<'_>,
        op: &str,
        over: Option<&PyLayer>,
    ) -> PyResult<(Vec<(String, Option<u64>)>, bool, Option<String>)> {
        let over = over.map(|layer| &layer.0);
        find_manifests(py)?;
        let ranking = match &self.0 {
            Store::Process(_) if over.is_none() => py.detach(|| self.0.rank_as_planned(op)),
            _ => {
                let policy = py.detach(|| policy(over)).into_python(py)?;
                self.inside(py, |store| store.rank(op, &policy))
            }
        };
        let ranking = ranking.into_python(py)?;
        let usable = ranking.usable.iter();
        let usable = usable.map(|(id, token)| (id.to_string(), *token)).collect();
        Ok((usable, ranking.strict, ranking.blocked))
    }

    fn check(&self, py: Python<'_>) -> PyResult<()> {
        find_manifests(py)?;
        let policy = py.detach(|| policy(None)).into_python(py)?;
        self.inside(py, |store| store.check(&policy))
            .into_python(py)
    }
}

/// The names of vendors that are known.
fn names(py: Python<'_>) -> PyResult<Arc<Names>> {
    find_manifests(py)?;
    py.detach(|| global().vendor_names()).into_python(py)
}

/// A layer of the given settings. Weaker layers decide settings that are `None`.
#[pyfunction]
#[pyo3(signature = (source, prefer=None, strict=None, per_op=None, deny_vendors=None, allow_vendors=None))]
fn layer(
    py: Python<'_>,
    source: &str,
    prefer: Option<&str>,
    strict: Option<bool>,
    per_op: Option<Vec<(String, Vec<String>)>>,
    deny_vendors: Option<Vec<String>>,
    allow_vendors: Option<Vec<String>>,
) -> PyResult<PyLayer> {
    let source = Source::api(source);
    fn sourced<T>(source: &Source, value: Option<T>) -> Option<Sourced<T>> {
        value.map(|value| Sourced::new(value, source.clone()))
    }
    let prefer = prefer.map(|word| {
        Prefer::parse(word).map_err(|hint| {
            let message = format!("`{word}` is not a preference");
            let error = flagos_core::Error::invalid_argument("prefer", message);
            to_python(py, &error.with_hint(hint))
        })
    });
    let orders = per_op.unwrap_or_default().into_iter();
    let selection = Selection {
        prefer: sourced(&source, prefer.transpose()?),
        strict: sourced(&source, strict),
        per_op: orders
            .map(|(op, order)| (op, Sourced::new(order, source.clone())))
            .collect(),
        deny_vendors: sourced(&source, deny_vendors),
        allow_vendors: sourced(&source, allow_vendors),
    };
    selection.layer(&*names(py)?).into_python(py).map(PyLayer)
}

/// Puts a layer in the place of that of the variables, for the whole process.
#[pyfunction]
#[pyo3(signature = (layer=None))]
fn set_layer(py: Python<'_>, layer: Option<&PyLayer>) -> PyResult<()> {
    let layer = layer.map(|layer| layer.0.clone());
    py.detach(|| global().set_adapter_layer(NAMESPACE, layer))
        .into_python(py)
}

/// The values of the variables now, not when the configuration was read.
#[pyfunction]
fn variables_now(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let env = Env::from_process();
    let names = names(py)?;
    let selection = variables::selection(&env, &names).into_python(py)?;
    let settings = variables::settings(&env).into_python(py)?;
    let dict = PyDict::new(py);
    dict.set_item(
        "prefer",
        selection.prefer.as_ref().map(|p| p.value.as_str()),
    )?;
    dict.set_item(
        "strict",
        selection.strict.as_ref().map(|strict| strict.value),
    )?;
    let per_op = selection.per_op.iter();
    let per_op: Vec<_> = per_op.map(|(op, order)| (op, &order.value)).collect();
    dict.set_item("per_op", per_op)?;
    dict.set_item(
        "deny_vendors",
        selection.deny_vendors.as_ref().map(|d| &d.value),
    )?;
    dict.set_item(
        "allow_vendors",
        selection.allow_vendors.as_ref().map(|a| &a.value),
    )?;
    dict.set_item("layer", PyLayer(selection.layer(&names).into_python(py)?))?;
    dict.set_item("plugin_modules", settings.plugin_modules)?;
    dict.set_item("skip_native", settings.skip_native)?;
    dict.set_item("compat", settings.compat)?;
    dict.set_item("strict_is_off", settings.strict_is_off)?;
    dict.set_item("log_level", settings.log_level)?;
    Ok(dict)
}

/// The normal spelling of an alternative. The error lists the valid ones.
#[pyfunction]
fn token(py: Python<'_>, text: &str) -> PyResult<String> {
    let selector = selection::token(text, &*names(py)?).into_python(py)?;
    Ok(selector.to_string())
}

/// The name under which the core knows a vendor.
#[pyfunction]
fn vendor(py: Python<'_>, name: &str) -> PyResult<String> {
    let vendor = vendors::canonical(name, &*names(py)?).into_python(py)?;
    Ok(vendor.to_string())
}

/// Called right before a fork: no thread uses the router until `release`.
#[pyfunction]
fn hold(py: Python<'_>) {
    py.detach(|| global().hold_for_fork());
}

/// Called right after a fork, in the parent and in the child.
#[pyfunction]
fn release(child: bool) {
    // SAFETY: `te_fl` registers both with `os.register_at_fork`, which calls one after the other on
    // the thread that forks; the child has no other thread.
    unsafe {
        if child {
            global().release_after_fork_in_child()
        } else {
            global().release_after_fork()
        }
    }
}

/// Adds the submodule.
///
/// # Errors
/// When the interpreter refuses the types.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let te = flagos_bindings::submodule(module, "te")?;
    te.add_class::<PyLayer>()?;
    te.add_class::<PyStore>()?;
    te.add_function(wrap_pyfunction!(layer, &te)?)?;
    te.add_function(wrap_pyfunction!(set_layer, &te)?)?;
    te.add_function(wrap_pyfunction!(variables_now, &te)?)?;
    te.add_function(wrap_pyfunction!(token, &te)?)?;
    te.add_function(wrap_pyfunction!(vendor, &te)?)?;
    te.add_function(wrap_pyfunction!(hold, &te)?)?;
    te.add_function(wrap_pyfunction!(release, &te)?)
}
