//! The C table and the devices behind it.

use std::ffi::{c_void, CStr};

use flagos_core::abi;
use flagos_core::vendors::VendorReport;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::IntoPython as _;
use crate::logs;
use crate::router::with_router;

/// The capsule's name, which an adapter passes to `PyCapsule_GetPointer`.
const CAPSULE_NAME: &CStr = c"flagos.FlagosApi";

#[pyfunction]
fn api_capsule(py: Python<'_>) -> PyResult<Py<PyAny>> {
    let table: *const abi::FlagosApi = abi::api();
    // SAFETY: the GIL is held; name and table live as long as the process, so that the capsule
    // needs no destructor; readers get the table through a const pointer.
    unsafe {
        let capsule = pyo3::ffi::PyCapsule_New(
            table.cast_mut().cast::<c_void>(),
            CAPSULE_NAME.as_ptr(),
            None,
        );
        Bound::from_owned_ptr_or_err(py, capsule).map(Bound::unbind)
    }
}

#[pyfunction]
fn init(py: Python<'_>) -> PyResult<()> {
    with_router(py, "init", |router| {
        logs::check_directives(router.config()?.log.as_deref())?;
        abi::initialize().map(drop)
    })
}

#[pyfunction]
fn device_count(py: Python<'_>) -> i32 {
    py.detach(|| (abi::api().device_count)())
}

#[pyfunction]
fn vendor(py: Python<'_>) -> PyResult<&'static str> {
    with_router(py, "vendor", |_| abi::chosen_vendor())
}

#[pyfunction]
fn devices(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let runtime = py.detach(abi::initialize).into_python(py)?;
    let vendor = runtime.vendor();
    let mut found = Vec::new();
    for index in 0..vendor.device_count() {
        let properties = py.detach(|| vendor.properties(index)).into_python(py)?;
        let device = PyDict::new(py);
        device.set_item("index", index)?;
        device.set_item("name", properties.name)?;
        device.set_item("vendor", vendor.name())?;
        device.set_item("total_memory", properties.total_memory)?;
        device.set_item("multi_processor_count", properties.multi_processor_count)?;
        device.set_item("major", properties.major)?;
        device.set_item("minor", properties.minor)?;
        found.push(device);
    }
    Ok(found)
}

#[pyfunction]
fn vendors(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let reports = py.detach(abi::vendor_reports).into_python(py)?;
    let describe = |report: VendorReport| {
        let vendor = PyDict::new(py);
        vendor.set_item("name", report.name)?;
        vendor.set_item("devices", report.devices)?;
        vendor.set_item("chosen", report.chosen)?;
        vendor.set_item("reason", report.reason)?;
        Ok(vendor)
    };
    reports.into_iter().map(describe).collect()
}

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("abi_version", abi::FLAGOS_ABI_VERSION)?;
    module.add_function(wrap_pyfunction!(api_capsule, module)?)?;
    module.add_function(wrap_pyfunction!(init, module)?)?;
    module.add_function(wrap_pyfunction!(device_count, module)?)?;
    module.add_function(wrap_pyfunction!(vendor, module)?)?;
    module.add_function(wrap_pyfunction!(devices, module)?)?;
    module.add_function(wrap_pyfunction!(vendors, module)?)
}
