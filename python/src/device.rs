//! The C table and the devices behind it.

use std::ffi::{CStr, c_void};

use flagos_core::abi;
use flagos_core::vendors::{Description, Missing, VendorReport};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::IntoPython as _;
use crate::logs;
use crate::manifests::find_manifests;
use crate::router::with_router;

/// The capsule's name, which an adapter passes to `PyCapsule_GetPointer`.
const CAPSULE_NAME: &CStr = c"flagos.FlagosApi";

#[pyfunction]
fn api_capsule(py: Python<'_>) -> PyResult<Py<PyAny>> {
    find_manifests(py)?;
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
    find_manifests(py)?;
    with_router(py, "init", |router| {
        logs::check_directives(router.config()?.log.as_deref())?;
        abi::initialize().map(drop)
    })
}

#[pyfunction]
fn device_count(py: Python<'_>) -> PyResult<i32> {
    find_manifests(py)?;
    Ok(py.detach(|| (abi::api().device_count)()))
}

/// Whether a device addresses the memory of another directly.
#[pyfunction]
fn reaches(py: Python<'_>, device: usize, peer: usize) -> PyResult<bool> {
    find_manifests(py)?;
    with_router(py, "reaches", |_| {
        abi::initialize()?.vendor().reaches(device, peer)
    })
}

#[pyfunction]
fn vendor(py: Python<'_>) -> PyResult<&'static str> {
    find_manifests(py)?;
    with_router(py, "vendor", |_| abi::chosen_vendor())
}

#[pyfunction]
fn vendor_info(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    find_manifests(py)?;
    let description = with_router(py, "vendor_info", |_| abi::chosen_description())?;
    described(py, description)
}

/// The descriptions of the vendors of this build.
#[pyfunction]
fn built_in_vendors(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let entries = flagos_core::vendors::built_in();
    entries
        .map(|entry| described(py, (entry.description)()))
        .collect()
}

/// Tries this vendor before all others, when none is asked for by name.
#[pyfunction]
fn prefer_vendor(py: Python<'_>, name: &str) -> PyResult<()> {
    flagos_core::vendors::prefer(name).into_python(py)
}

/// The product name of the first device of a vendor, found without opening the vendor in this process; "" where that is
/// not possible.
#[pyfunction]
fn product_name(py: Python<'_>, vendor: &str) -> PyResult<String> {
    find_manifests(py)?;
    let name = py.detach(|| abi::product_name(vendor)).into_python(py)?;
    Ok(name.unwrap_or_default())
}

/// The description of a vendor as a dict.
fn described<'py>(py: Python<'py>, description: &Description) -> PyResult<Bound<'py, PyDict>> {
    let info = PyDict::new(py);
    info.set_item("name", &description.name)?;
    info.set_item("version", &description.version)?;
    info.set_item("aliases", &description.aliases)?;
    info.set_item("serving", description.serving.word())?;
    info.set_item("torch_device_type", description.serving.torch_device_type())?;
    info.set_item("collective_engine", &description.collective_engine)?;
    info.set_item("triton_backend", &description.triton_backend)?;
    info.set_item("flaggems_vendor", &description.flaggems_vendor)?;
    info.set_item("dlpack_device_type", description.dlpack_device_type)?;
    let variables = description.variables.iter().map(|variable| {
        let entry = PyDict::new(py);
        entry.set_item("name", &variable.name)?;
        entry.set_item("text", &variable.text)?;
        Ok(entry)
    });
    info.set_item("variables", variables.collect::<PyResult<Vec<_>>>()?)?;
    let libraries = description.libraries.iter().map(|library| {
        let entry = PyDict::new(py);
        entry.set_item("soname", &library.soname)?;
        entry.set_item("text", &library.text)?;
        entry.set_item("required", library.required)?;
        Ok(entry)
    });
    info.set_item("libraries", libraries.collect::<PyResult<Vec<_>>>()?)?;
    info.set_item("device_lost", &description.device_lost)?;
    Ok(info)
}

#[pyfunction]
fn devices(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    find_manifests(py)?;
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

/// The handle of a stream as a number; `None` where streams have none.
#[pyfunction]
fn stream_handle(py: Python<'_>, device: i32, stream: u64) -> PyResult<Option<usize>> {
    let handle = py.detach(|| {
        abi::native_stream(device, stream).map(|handle| handle.map(|handle| handle as usize))
    });
    handle.into_python(py)
}

#[pyfunction]
fn vendors(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    find_manifests(py)?;
    let reports = py.detach(abi::vendor_reports).into_python(py)?;
    let describe = |report: VendorReport| {
        let vendor = PyDict::new(py);
        vendor.set_item("name", report.name)?;
        vendor.set_item("source", report.source)?;
        vendor.set_item("devices", report.devices)?;
        vendor.set_item("chosen", report.chosen)?;
        vendor.set_item("reason", report.reason)?;
        Ok(vendor)
    };
    reports.into_iter().map(describe).collect()
}

/// The vendors whose chip this machine has, and whose distribution is not installed.
#[pyfunction]
fn missing_vendors(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    find_manifests(py)?;
    let missing = py.detach(abi::missing_vendors).into_python(py)?;
    let describe = |one: Missing| {
        let vendor = PyDict::new(py);
        vendor.set_item("name", one.name)?;
        vendor.set_item("sign", one.sign)?;
        vendor.set_item("distribution", one.distribution)?;
        vendor.set_item("install", one.install)?;
        Ok(vendor)
    };
    missing.into_iter().map(describe).collect()
}

/// Closes the device memory of other processes, at the end of this one.
#[pyfunction]
fn close_shared_memory(py: Python<'_>) {
    if let Some(runtime) = flagos_core::runtime::process::get() {
        py.detach(|| {
            if let Ok(sharing) = runtime.vendor().sharing() {
                sharing.close_all();
            }
        });
    }
}

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("abi_version", abi::FLAGOS_ABI_VERSION)?;
    module.add_function(wrap_pyfunction!(api_capsule, module)?)?;
    module.add_function(wrap_pyfunction!(init, module)?)?;
    module.add_function(wrap_pyfunction!(device_count, module)?)?;
    module.add_function(wrap_pyfunction!(reaches, module)?)?;
    module.add_function(wrap_pyfunction!(vendor, module)?)?;
    module.add_function(wrap_pyfunction!(vendor_info, module)?)?;
    module.add_function(wrap_pyfunction!(built_in_vendors, module)?)?;
    module.add_function(wrap_pyfunction!(prefer_vendor, module)?)?;
    module.add_function(wrap_pyfunction!(product_name, module)?)?;
    module.add_function(wrap_pyfunction!(devices, module)?)?;
    module.add_function(wrap_pyfunction!(close_shared_memory, module)?)?;
    module.add_function(wrap_pyfunction!(stream_handle, module)?)?;
    module.add_function(wrap_pyfunction!(missing_vendors, module)?)?;
    module.add_function(wrap_pyfunction!(vendors, module)?)
}
