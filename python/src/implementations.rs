//! Registration of implementations.

use flagos_core::Error;
use flagos_core::registry::{Callable, Condition, Implementation, Kind, Verdict};
use pyo3::exceptions::{PyLookupError, PyTypeError};
use pyo3::prelude::*;

use crate::errors::to_python;
use crate::foreign;
use crate::router::with_router;

/// An implementation from the arguments that both kinds of registration have.
fn describe(
    py: Python<'_>,
    impl_id: &str,
    kind: &str,
    vendor: Option<&str>,
    backend: Option<&str>,
    priority: i32,
    unavailable_reason: Option<&str>,
) -> PyResult<Implementation> {
    let Some(kind) = Kind::parse(kind) else {
        let message = format!("`{kind}` is not a kind of implementation");
        let error = Error::invalid_argument("register", message)
            .with_hint("use `flagos`, `vendor` or `reference`");
        return Err(to_python(py, &error));
    };
    if kind == Kind::Vendor && vendor.is_none() {
        let message = format!("`{impl_id}` is of kind `vendor` but names no vendor");
        let error = Error::invalid_argument("register", message)
            .with_hint("give the name, for example vendor=\"acme\"");
        return Err(to_python(py, &error));
    }
    // Without a backend name of its own, routes name the implementation by its vendor or its kind.
    let backend = backend.or(vendor).unwrap_or(kind.as_str());
    let mut implementation = Implementation::new(impl_id, kind, backend).priority(priority);
    if let Some(vendor) = vendor {
        implementation = implementation.vendor(vendor);
    }
    if let Some(reason) = unavailable_reason {
        implementation = implementation.unavailable(reason);
    }
    Ok(implementation)
}

#[pyfunction]
#[pyo3(signature = (namespace, names, impl_id, kind, vendor=None, backend=None, priority=0, unavailable_reason=None, cpu_fallback=false))]
#[allow(clippy::too_many_arguments)] // a keyword each in Python
fn register_impls(
    py: Python<'_>,
    namespace: &str,
    names: Vec<String>,
    impl_id: &str,
    kind: &str,
    vendor: Option<&str>,
    backend: Option<&str>,
    priority: i32,
    unavailable_reason: Option<&str>,
    cpu_fallback: bool,
) -> PyResult<usize> {
    let mut implementation = describe(
        py,
        impl_id,
        kind,
        vendor,
        backend,
        priority,
        unavailable_reason,
    )?;
    if cpu_fallback {
        implementation = implementation.callable(Callable::CpuFallback);
    }
    with_router(py, "register_impls", |router| {
        router.register_all(namespace, &names, implementation)
    })?;
    Ok(names.len())
}

#[pyfunction]
#[pyo3(
    signature = (op, impl_id, kind, r#fn=None, vendor=None, backend=None, priority=0, unavailable_reason=None, on_request=None, only=Vec::new(), verdict=None),
    text_signature = "(op, impl_id, kind, fn=None, vendor=None, backend=None, priority=0, unavailable_reason=None, on_request=None, only=(), verdict=None)"
)]
#[allow(clippy::too_many_arguments)] // a keyword each in Python
pub(crate) fn register_impl(
    py: Python<'_>,
    op: &str,
    impl_id: &str,
    kind: &str,
    r#fn: Option<Bound<'_, PyAny>>,
    vendor: Option<&str>,
    backend: Option<&str>,
    priority: i32,
    unavailable_reason: Option<&str>,
    on_request: Option<&str>,
    only: Vec<(String, String)>,
    verdict: Option<(String, String)>,
) -> PyResult<u64> {
    let mut implementation = describe(
        py,
        impl_id,
        kind,
        vendor,
        backend,
        priority,
        unavailable_reason,
    )?;
    if let Some(reason) = on_request {
        implementation = implementation.on_request(reason);
    }
    implementation = implementation.only(only.into_iter().map(|(name, means)| Condition {
        name: name.into(),
        means: means.into(),
    }));
    if let Some((verdict, found)) = verdict {
        implementation = implementation.verdict(Verdict {
            verdict: verdict.into(),
            found: found.into(),
        });
    }
    let Some(function) = r#fn else {
        with_router(py, "register_impl", |router| {
            router.register(op, implementation)
        })?;
        return Ok(0);
    };
    if !function.is_callable() {
        return Err(PyTypeError::new_err(format!(
            "the implementation of {op} must be callable, not {}",
            function.get_type().name()?
        )));
    }
    // Kept before the registration, because from then on a dispatch may ask for the token.
    let token = foreign::keep(function.unbind());
    let implementation = implementation.callable(Callable::Foreign(token));
    with_router(py, "register_impl", |router| {
        router.register(op, implementation)
    })
    .inspect_err(|_| foreign::forget(token))?;
    Ok(token)
}

#[pyfunction]
fn declare_composite(py: Python<'_>, namespace: &str, names: Vec<String>) -> PyResult<()> {
    with_router(py, "declare_composite", |router| {
        router.declare_composite(namespace, &names)
    })
}

#[pyfunction]
fn unregister(py: Python<'_>, op: &str, impl_id: &str) -> PyResult<()> {
    let token = with_router(py, "unregister", |router| {
        let token = router.registry().token(op, impl_id);
        router.unregister(op, impl_id)?;
        Ok(token)
    })?;
    if let Some(token) = token {
        foreign::forget(token);
    }
    Ok(())
}

#[pyfunction]
#[pyo3(name = "foreign")]
fn foreign_callable(py: Python<'_>, token: u64) -> PyResult<Py<PyAny>> {
    foreign::find(py, token).ok_or_else(|| {
        PyLookupError::new_err(format!(
            "no implementation has the token {token}: it was unregistered"
        ))
    })
}

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(register_impls, module)?)?;
    module.add_function(wrap_pyfunction!(register_impl, module)?)?;
    module.add_function(wrap_pyfunction!(declare_composite, module)?)?;
    module.add_function(wrap_pyfunction!(unregister, module)?)?;
    module.add_function(wrap_pyfunction!(foreign_callable, module)?)
}
