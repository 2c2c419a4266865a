//! The objects in which CANN's operators take their arguments, from `libnnopbase`.

// The functions keep the names of the vendor's documentation.
#![allow(non_snake_case)]

use std::ffi::{CStr, c_void};

use flagos_core::error::{Error, Result};
use flagos_vendor_kit::{driver_library, functions};

use super::super::api::{Api, Code};
use super::super::driver;
use super::dtype::DType;
use super::view::View;

/// The library that makes the objects.
pub(super) const SONAME: &str = "libnnopbase.so";

/// An object, or an executor.
pub(super) type Raw = *mut c_void;

functions! {
    Base
    required {
        aclDestroyTensor(Raw);
        aclDestroyScalar(Raw);
        aclDestroyIntArray(Raw);
        aclDestroyFloatArray(Raw);
        aclDestroyBoolArray(Raw);
        aclDestroyTensorList(Raw);
        aclDestroyScalarList(Raw);
        aclGetViewShape(Raw, *mut *mut i64, *mut u64);
        aclSetAclOpExecutorRepeatable(Raw);
        aclDestroyAclOpExecutor(Raw);
        aclSetTensorAddr(Raw, usize, Raw, *mut c_void);
    }
    newer {}
    others {
        aclCreateTensor(*const i64, u64, i32, *const i64, i64, i32, *const i64, u64, *mut c_void) -> Raw;
        aclCreateScalar(*const c_void, i32) -> Raw;
        aclCreateIntArray(*const i64, u64) -> Raw;
        aclCreateFloatArray(*const f32, u64) -> Raw;
        aclCreateBoolArray(*const bool, u64) -> Raw;
        aclCreateTensorList(*const Raw, u64) -> Raw;
        aclCreateScalarList(*const Raw, u64) -> Raw;
    }
}

impl Base {
    /// Opens the library; or says why it cannot be used.
    pub(super) fn open() -> std::result::Result<Self, String> {
        let library = driver_library::open(&[SONAME]).map_err(|missing| {
            format!("{missing}; install the toolkit of CANN, and `source` its set_env.sh")
        })?;
        // SAFETY: a library of this name is CANN's, and it is never closed.
        unsafe { Self::find(library) }.map_err(|missing| {
            let missing = missing.join(", ");
            format!("{SONAME} has no {missing}: install CANN 8.1 or newer")
        })
    }
}

/// A number of the program.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    Bool(bool),
    Whole(i64),
    Real(f64),
    /// In single precision, which some functions ask for.
    Single(f32),
    Complex(f64, f64),
}

impl Number {
    /// Its type and its bytes, as words.
    fn parts(self) -> (DType, [u64; 2]) {
        match self {
            Self::Bool(value) => (DType::Bool, [u64::from(value), 0]),
            Self::Whole(value) => (DType::I64, [value as u64, 0]),
            Self::Real(value) => (DType::F64, [value.to_bits(), 0]),
            Self::Single(value) => (DType::F32, [u64::from(value.to_bits()), 0]),
            Self::Complex(real, imaginary) => (DType::C128, [real.to_bits(), imaginary.to_bits()]),
        }
    }

    /// Words that differ for different numbers.
    pub(super) fn words(self) -> [u64; 3] {
        let (dtype, [low, high]) = self.parts();
        [dtype as u64, low, high]
    }
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Tensor,
    Scalar,
    IntArray,
    FloatArray,
    BoolArray,
    TensorList,
    ScalarList,
    Executor,
}

/// An object of the library, destroyed with this value.
pub(super) struct Object {
    base: &'static Base,
    kind: Kind,
    raw: Raw,
}

// SAFETY: objects belong to no thread.
unsafe impl Send for Object {}

impl Drop for Object {
    fn drop(&mut self) {
        let destroy = match self.kind {
            Kind::Tensor => self.base.aclDestroyTensor,
            Kind::Scalar => self.base.aclDestroyScalar,
            Kind::IntArray => self.base.aclDestroyIntArray,
            Kind::FloatArray => self.base.aclDestroyFloatArray,
            Kind::BoolArray => self.base.aclDestroyBoolArray,
            Kind::TensorList => self.base.aclDestroyTensorList,
            Kind::ScalarList => self.base.aclDestroyScalarList,
            Kind::Executor => self.base.aclDestroyAclOpExecutor,
        };
        // SAFETY: made by this library, and destroyed once.
        let code = unsafe { destroy(self.raw) };
        if code != 0 {
            tracing::error!(kind = ?self.kind, code, "an object of CANN was not destroyed");
        }
    }
}

impl Object {
    fn new(base: &'static Base, kind: Kind, raw: Raw) -> Result<Self> {
        if raw.is_null() {
            let told = driver::open().ok().and_then(Api::recent_error);
            let told = told.unwrap_or_else(|| "it tells no reason".into());
            let message = format!("{SONAME} made no {kind:?}: {}", text(Some(&told)));
            return Err(Error::device("aclnn", message).with_hint("the logs are in ~/ascend/log"));
        }
        Ok(Self { base, kind, raw })
    }

    pub(super) fn raw(&self) -> Raw {
        self.raw
    }

    /// Gives the object to another that destroys it.
    fn into_raw(self) -> Raw {
        let raw = self.raw;
        std::mem::forget(self);
        raw
    }

    pub(super) fn tensor(base: &'static Base, view: &View) -> Result<Self> {
        let elements = [(view.storage_nbytes / view.dtype.size()) as i64];
        // SAFETY: the lists are as long as said, and are copied.
        let raw = unsafe {
            (base.aclCreateTensor)(
                view.sizes.as_ptr(),
                view.sizes.len() as u64,
                view.dtype.acl(),
                view.strides.as_ptr(),
                view.offset,
                view.format(),
                elements.as_ptr(),
                1,
                view.storage,
            )
        };
        Self::new(base, Kind::Tensor, raw)
    }

    pub(super) fn scalar(base: &'static Base, number: Number) -> Result<Self> {
        let (dtype, words) = number.parts();
        // SAFETY: a value of the type, whose bytes come first on these little-endian machines; it is copied.
        let raw = unsafe { (base.aclCreateScalar)(words.as_ptr().cast(), dtype.acl()) };
        Self::new(base, Kind::Scalar, raw)
    }

    pub(super) fn ints(base: &'static Base, numbers: &[i64]) -> Result<Self> {
        // SAFETY: as many numbers as said, which are copied.
        let raw = unsafe { (base.aclCreateIntArray)(numbers.as_ptr(), numbers.len() as u64) };
        Self::new(base, Kind::IntArray, raw)
    }

    pub(super) fn floats(base: &'static Base, numbers: &[f64]) -> Result<Self> {
        let numbers: Vec<f32> = numbers.iter().map(|number| *number as f32).collect();
        // SAFETY: as above.
        let raw = unsafe { (base.aclCreateFloatArray)(numbers.as_ptr(), numbers.len() as u64) };
        Self::new(base, Kind::FloatArray, raw)
    }

    pub(super) fn bools(base: &'static Base, values: &[u8]) -> Result<Self> {
        let values: Vec<bool> = values.iter().map(|value| *value != 0).collect();
        // SAFETY: as above.
        let raw = unsafe { (base.aclCreateBoolArray)(values.as_ptr(), values.len() as u64) };
        Self::new(base, Kind::BoolArray, raw)
    }

    /// A list, which owns its tensors, and these. `None` stands for a tensor that is not there.
    pub(super) fn tensors(base: &'static Base, views: &[Option<View>]) -> Result<(Self, Vec<Raw>)> {
        let mut made = Vec::with_capacity(views.len());
        for view in views {
            made.push(
                view.as_ref()
                    .map(|view| Self::tensor(base, view))
                    .transpose()?,
            );
        }
        let null = std::ptr::null_mut();
        let raws: Vec<Raw> = made
            .iter()
            .map(|tensor| tensor.as_ref().map_or(null, Self::raw))
            .collect();
        // SAFETY: as many tensors as said; the list owns them from now on.
        let raw = unsafe { (base.aclCreateTensorList)(raws.as_ptr(), raws.len() as u64) };
        let list = Self::new(base, Kind::TensorList, raw)?;
        made.into_iter().flatten().for_each(|tensor| {
            tensor.into_raw();
        });
        Ok((list, raws))
    }

    /// A list, which owns its numbers.
    pub(super) fn scalars(base: &'static Base, numbers: &[Number]) -> Result<Self> {
        let mut made = Vec::with_capacity(numbers.len());
        for number in numbers {
            made.push(Self::scalar(base, *number)?);
        }
        let raws: Vec<Raw> = made.iter().map(Self::raw).collect();
        // SAFETY: as above.
        let raw = unsafe { (base.aclCreateScalarList)(raws.as_ptr(), raws.len() as u64) };
        let list = Self::new(base, Kind::ScalarList, raw)?;
        made.into_iter().for_each(|scalar| {
            scalar.into_raw();
        });
        Ok(list)
    }

    /// An executor that phase 1 has made.
    pub(super) fn executor(base: &'static Base, raw: Raw) -> Result<Self> {
        Self::new(base, Kind::Executor, raw)
    }

    /// Gives an executor to phase 2, which destroys it.
    pub(super) fn spent(self) {
        self.into_raw();
    }

    /// Keeps an executor for further calls. False where CANN does not repeat it.
    pub(super) fn keep(&self) -> bool {
        // SAFETY: an executor that phase 1 has just made.
        unsafe { (self.base.aclSetAclOpExecutorRepeatable)(self.raw) == 0 }
    }

    /// Gives a tensor of a kept executor another address: of its storage, at this place among the tensors of the call.
    pub(super) fn move_tensor(&self, place: usize, tensor: Raw, storage: *mut c_void) -> Code {
        // SAFETY: a kept executor and the tensor that it was made with.
        unsafe { (self.base.aclSetTensorAddr)(self.raw, place, tensor, storage) }
    }

    /// The sizes that a tensor has now: phase 2 of some operators makes it smaller.
    pub(super) fn sizes(&self) -> Result<Vec<i64>> {
        let (mut numbers, mut count) = (std::ptr::null_mut(), 0);
        // SAFETY: a live tensor and valid outputs.
        let code = unsafe { (self.base.aclGetViewShape)(self.raw, &mut numbers, &mut count) };
        if code != 0 || (numbers.is_null() && count != 0) {
            return Err(Error::device("aclGetViewShape", format!("code {code}")));
        }
        if numbers.is_null() {
            return Ok(Vec::new());
        }
        // SAFETY: as many numbers as said, which are the caller's to delete: by `operator delete[]`, which is `free` here.
        unsafe {
            let sizes = std::slice::from_raw_parts(numbers, count as usize).to_vec();
            libc::free(numbers.cast());
            Ok(sizes)
        }
    }
}

/// The text of a failure, if the library of the runtime tells one.
pub(super) fn text(text: Option<&str>) -> String {
    let words: Vec<&str> = text.unwrap_or_default().split_whitespace().collect();
    words.join(" ").chars().take(400).collect()
}

/// A text for a parameter of type `char*`.
pub(super) type Text<'a> = &'a CStr;
