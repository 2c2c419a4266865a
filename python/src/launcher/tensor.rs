//! Reading torch's tensors: address, dtype and kind of device.
//!
//! Exact instances of `torch.Tensor` and `torch.nn.Parameter` are read by torch's stable C functions
//! (`torch/csrc/inductor/aoti_torch/c/shim.h`), whose handle is the address of the `at::Tensor` inside the
//! Python object. `torch_fl.launcher` finds the place of the `at::Tensor`, checks it on live tensors, and looks
//! the functions up, so that this crate does not link torch. Any other object with a `data_ptr` is asked through
//! Python.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::prelude::*;

use super::ffi::{self, Object};

type Get<T> = unsafe extern "C" fn(*mut c_void, *mut T) -> i32;

struct Torch {
    /// The types `torch.Tensor` and `torch.nn.Parameter`.
    types: [usize; 2],
    /// Bytes from the start of the Python object to its `at::Tensor`.
    offset: usize,
    data_ptr: Get<*mut c_void>,
    dtype: Get<i32>,
    device_type: Get<i32>,
}

/// The way to read tensors; never freed, because readers may hold it.
static TORCH: AtomicPtr<Torch> = AtomicPtr::new(std::ptr::null_mut());

/// The properties of a tensor that a launch needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tensor {
    /// The address of the first element.
    pub address: u64,
    /// torch's `ScalarType`.
    pub dtype: i32,
    /// torch's `DeviceType`.
    pub device_type: i32,
}

/// The tensor's properties, if the object is a tensor that can be read directly.
///
/// # Safety
/// The object is alive, and the GIL is held.
#[inline]
pub unsafe fn read(object: Object) -> Option<Tensor> {
    // SAFETY: NULL, or set once and never freed.
    let torch = unsafe { TORCH.load(Ordering::Acquire).as_ref() }?;
    // SAFETY: the caller's promise.
    if !torch.types.contains(&unsafe { ffi::type_of(object) }) {
        return None;
    }
    let handle = object.cast::<u8>().wrapping_add(torch.offset);
    // SAFETY: `install` has checked the offset for these types; the field is a pointer.
    if unsafe { handle.cast::<usize>().read() } == 0 {
        return None;
    }
    let (mut address, mut dtype, mut device_type) = (std::ptr::null_mut(), 0, 0);
    let handle = handle.cast::<c_void>();
    // SAFETY: the handle of a live tensor and valid outputs. The functions catch torch's exceptions.
    let status = unsafe {
        (torch.device_type)(handle, &mut device_type)
            | (torch.dtype)(handle, &mut dtype)
            | (torch.data_ptr)(handle, &mut address)
    };
    (status == 0).then_some(Tensor {
        address: address as u64,
        dtype,
        device_type,
    })
}

/// Declares how tensors are read: their types, the offset of the `at::Tensor` in them, and the addresses of
/// `aoti_torch_get_data_ptr`, `_dtype` and `_device_type`. With an offset of 0 they are read through Python.
#[pyfunction]
fn launch_tensors(
    types: [Bound<'_, PyAny>; 2],
    offset: usize,
    data_ptr: usize,
    dtype: usize,
    device_type: usize,
) {
    if offset == 0 || data_ptr == 0 || dtype == 0 || device_type == 0 {
        TORCH.store(std::ptr::null_mut(), Ordering::Release);
        return;
    }
    // The types live as long as the process.
    let types = types.map(|class| class.unbind().into_ptr() as usize);
    // SAFETY: the functions of these signatures, found by name in torch's library, which stays loaded.
    let torch = unsafe {
        Torch {
            types,
            offset,
            data_ptr: std::mem::transmute::<usize, Get<*mut c_void>>(data_ptr),
            dtype: std::mem::transmute::<usize, Get<i32>>(dtype),
            device_type: std::mem::transmute::<usize, Get<i32>>(device_type),
        }
    };
    TORCH.store(Box::into_raw(Box::new(torch)), Ordering::Release);
}

/// `(address, dtype, device type)` as a launch reads them, or `None` when it would ask through Python.
#[pyfunction]
fn launch_read_tensor(tensor: &Bound<'_, PyAny>) -> Option<(u64, i32, i32)> {
    // SAFETY: alive, and the GIL is held.
    let read = unsafe { read(tensor.as_ptr()) }?;
    Some((read.address, read.dtype, read.device_type))
}

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(launch_tensors, module)?)?;
    module.add_function(wrap_pyfunction!(launch_read_tensor, module)?)
}
