//! A call as the host gives it, with its numbers checked.

use std::mem::size_of;

use flagos_core::runtime::{Stream, Vendor};
use flagos_core::vendors::library::*;
use flagos_core::{Error, Result};
use flagos_vendor_kit::export::{stream_of, vendor_of};

use crate::layout::{View, decline};

fn wrong<T>(message: impl Into<String>) -> Result<T> {
    Err(Error::invalid_argument("run", message))
}

/// A call of an operator.
pub struct Call<'c>(&'c FlagosKernelCall);

/// A tensor of a call.
#[derive(Debug, Clone, Copy)]
pub struct Tensor<'c> {
    raw: &'c FlagosKernelTensor,
    sizes: &'c [i64],
    strides: &'c [i64],
}

/// A factor or a summand: a tensor of the device, or a number of the host.
#[derive(Debug, Clone, Copy)]
pub enum Operand<'c> {
    /// `float32` on the device.
    Tensor(Tensor<'c>),
    /// A number.
    Number(f32),
}

impl<'c> Call<'c> {
    /// The call at this address.
    ///
    /// # Safety
    /// `call` is NULL, or a call of a host that has opened this library, as `flagos_kernels.h` says.
    pub unsafe fn new(call: *const FlagosKernelCall) -> Result<Self> {
        // SAFETY: the caller's promise, also below.
        let Some(size) = (unsafe { call.cast::<usize>().as_ref() }) else {
            return wrong("the call is NULL");
        };
        if *size < size_of::<FlagosKernelCall>() {
            return wrong(format!("a call of {size} bytes"));
        }
        // SAFETY: as large as it says.
        Ok(Self(unsafe { &*call }))
    }

    /// The device of the tensors.
    pub fn device(&self) -> Result<usize> {
        let device = usize::try_from(self.0.device);
        device.or_else(|_| wrong(format!("the device {}", self.0.device)))
    }

    /// The vendor.
    pub fn vendor(&self) -> &dyn Vendor {
        // SAFETY: a call has an opened instance.
        unsafe { vendor_of(self.0.instance) }
    }

    /// The stream to queue on, by its handle of CUDA.
    pub fn stream(&self) -> Result<u64> {
        // SAFETY: a call has a live stream.
        let stream: &dyn Stream = unsafe { stream_of(self.0.stream) };
        match stream.native_handle() {
            Some(handle) => Ok(handle as u64),
            None => wrong("the stream has no handle"),
        }
    }

    fn argument(&self, index: usize) -> Result<&'c FlagosKernelValue> {
        if index >= self.0.num_arguments {
            return wrong(format!("there is no argument {index}"));
        }
        // SAFETY: as many arguments as the call says.
        Ok(unsafe { &*self.0.arguments.add(index) })
    }

    /// A tensor of the device among the arguments, of `float32`.
    pub fn tensor(&self, index: usize) -> Result<Tensor<'c>> {
        match self.operand(index)? {
            Operand::Tensor(tensor) => Ok(tensor),
            Operand::Number(_) => decline(format!("argument {index} is in host memory")),
        }
    }

    /// A tensor of `float32` among the arguments, or one that stands for a number.
    pub fn operand(&self, index: usize) -> Result<Operand<'c>> {
        let value = self.argument(index)?;
        if value.tag != FLAGOS_VALUE_TENSOR {
            return decline(format!("argument {index} is no tensor"));
        }
        // SAFETY: the tag says that this is a tensor.
        let tensor = unsafe { Tensor::new(value.r#as.tensor) }?;
        match tensor.raw.flags & FLAGOS_TENSOR_HOST {
            0 => Ok(Operand::Tensor(tensor.of_float32()?)),
            _ => Ok(Operand::Number(single(tensor.host_number()?)?)),
        }
    }

    /// A `Scalar` among the arguments.
    pub fn number(&self, index: usize) -> Result<f32> {
        let value = self.argument(index)?;
        // SAFETY: the tag says which member there is.
        let number = unsafe {
            match value.tag {
                FLAGOS_VALUE_INT | FLAGOS_VALUE_BOOL => value.r#as.integer as f64,
                FLAGOS_VALUE_FLOAT => value.r#as.real,
                tag => return decline(format!("argument {index} is of the tag {tag}")),
            }
        };
        single(number)
    }

    /// The only result, of `float32` on the device.
    pub fn output(&self) -> Result<Tensor<'c>> {
        if self.0.num_outputs != 1 {
            return wrong(format!("{} outputs", self.0.num_outputs));
        }
        // SAFETY: one output.
        let tensor = unsafe { Tensor::new(*self.0.outputs) }?;
        tensor.of_float32()
    }
}

impl<'c> Tensor<'c> {
    /// # Safety
    /// `tensor` is NULL or one of a call.
    unsafe fn new(tensor: *const FlagosKernelTensor) -> Result<Self> {
        // SAFETY: the caller's promise, also below.
        let Some(size) = (unsafe { tensor.cast::<usize>().as_ref() }) else {
            return decline("a tensor is not there");
        };
        if *size < size_of::<FlagosKernelTensor>() {
            return wrong(format!("a tensor of {size} bytes"));
        }
        // SAFETY: as large as it says.
        let raw = unsafe { &*tensor };
        let dims = usize::try_from(raw.num_dims).unwrap_or(0);
        let list = |list: *const i64| match dims {
            0 => &[][..],
            // SAFETY: as many numbers as there are dimensions.
            _ => unsafe { std::slice::from_raw_parts(list, dims) },
        };
        Ok(Self {
            raw,
            sizes: list(raw.sizes),
            strides: list(raw.strides),
        })
    }

    /// The address of the first element.
    pub fn address(&self) -> u64 {
        self.raw.data as u64
    }

    /// Sizes and strides.
    pub fn view(&self) -> View<'c> {
        (self.sizes, self.strides)
    }

    fn of_float32(self) -> Result<Self> {
        if self.raw.dtype != FLAGOS_DTYPE_FLOAT32 || self.raw.flags & FLAGOS_TENSOR_HOST != 0 {
            return decline("only float32 on the device is computed");
        }
        Ok(self)
    }

    /// The number that a tensor in host memory holds.
    fn host_number(&self) -> Result<f64> {
        let data = self.raw.data;
        if data.is_null() || self.raw.num_elements != 1 {
            return wrong("a number without a value");
        }
        // SAFETY: one element of this dtype, readable by the host.
        unsafe {
            Ok(match self.raw.dtype {
                FLAGOS_DTYPE_FLOAT32 => data.cast::<f32>().read_unaligned().into(),
                FLAGOS_DTYPE_FLOAT64 => data.cast::<f64>().read_unaligned(),
                FLAGOS_DTYPE_INT64 => data.cast::<i64>().read_unaligned() as f64,
                FLAGOS_DTYPE_INT32 => data.cast::<i32>().read_unaligned().into(),
                FLAGOS_DTYPE_BOOL => f64::from(data.cast::<u8>().read() != 0),
                dtype => return decline(format!("a number of dtype {dtype}")),
            })
        }
    }
}

/// The number as `float32`. The host has the right error for one that is too large.
fn single(number: f64) -> Result<f32> {
    let single = number as f32;
    if single.is_infinite() && number.is_finite() {
        decline(format!("{number} is no float32"))
    } else {
        Ok(single)
    }
}
