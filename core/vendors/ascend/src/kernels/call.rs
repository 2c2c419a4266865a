//! A call as the host gives it.

use std::ffi::CStr;
use std::mem::size_of;
use std::ops::Deref;
use std::ptr::null_mut;

use flagos_core::error::{Error, ErrorKind, Result};
use flagos_core::runtime::Stream;
use flagos_core::vendors::library::*;
use flagos_vendor_kit::export::stream_of;

use super::super::stream::AscendStream;
use super::context::Context;
use super::dtype::DType;
use super::functions::Function;
use super::launch::{self, Arg};
use super::library::Library;
use super::objects::Number;
use super::view::{View, decline};

/// A call of an operator.
pub(super) struct Call<'c>(Context<'c>);

impl<'c> Deref for Call<'c> {
    type Target = Context<'c>;

    fn deref(&self) -> &Context<'c> {
        &self.0
    }
}

/// An argument.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value<'c> {
    None,
    Tensor(Tensor<'c>),
    /// NULL for tensors that are not there.
    Tensors(&'c [*const FlagosKernelTensor]),
    Number(Number),
    Text(&'c CStr),
    Ints(&'c [i64]),
    Floats(&'c [f64]),
    Bools(&'c [u8]),
    /// The host's number of a dtype.
    DType(i32),
}

/// A tensor of a call, which may lie in host memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tensor<'c>(pub(super) &'c FlagosKernelTensor);

impl Tensor<'_> {
    /// Whether it is one element in host memory.
    pub(super) fn is_on_host(&self) -> bool {
        self.0.flags & FLAGOS_TENSOR_HOST != 0
    }

    /// Whether it stands for a number of the program.
    pub(super) fn is_number(&self) -> bool {
        self.0.flags & FLAGOS_TENSOR_NUMBER != 0
    }

    pub(super) fn view(&self) -> Result<View> {
        if self.is_on_host() {
            return decline("a tensor of one element is in host memory");
        }
        View::new(self.0)
    }

    pub(super) fn dtype(&self) -> Result<DType> {
        match DType::of_host(self.0.dtype) {
            Some(dtype) => Ok(dtype),
            None => decline(format!(
                "CANN has no type for torch's dtype {}",
                self.0.dtype
            )),
        }
    }

    /// The element of a tensor in host memory.
    pub(super) fn number(&self) -> Result<Number> {
        let data = self.0.data;
        if data.is_null() {
            return Err(Error::invalid_argument(
                "aclnn",
                "a tensor in host memory has no element",
            ));
        }
        // SAFETY: the host promises one readable element of this dtype.
        unsafe {
            Ok(match self.dtype()? {
                DType::F32 => Number::Real(data.cast::<f32>().read_unaligned().into()),
                DType::F64 => Number::Real(data.cast::<f64>().read_unaligned()),
                DType::F16 => Number::Real(half_to_real(data.cast::<u16>().read_unaligned())),
                DType::Bf16 => {
                    let bits = u32::from(data.cast::<u16>().read_unaligned()) << 16;
                    Number::Real(f32::from_bits(bits).into())
                }
                DType::I8 => Number::Whole(data.cast::<i8>().read_unaligned().into()),
                DType::I16 => Number::Whole(data.cast::<i16>().read_unaligned().into()),
                DType::I32 => Number::Whole(data.cast::<i32>().read_unaligned().into()),
                DType::I64 => Number::Whole(data.cast::<i64>().read_unaligned()),
                DType::U8 => Number::Whole(data.cast::<u8>().read_unaligned().into()),
                DType::U16 => Number::Whole(data.cast::<u16>().read_unaligned().into()),
                DType::U32 => Number::Whole(data.cast::<u32>().read_unaligned().into()),
                DType::Bool => Number::Bool(data.cast::<u8>().read() != 0),
                DType::C64 => {
                    let [real, imaginary] = data.cast::<[f32; 2]>().read_unaligned();
                    Number::Complex(real.into(), imaginary.into())
                }
                DType::C128 => {
                    let [real, imaginary] = data.cast::<[f64; 2]>().read_unaligned();
                    Number::Complex(real, imaginary)
                }
                dtype @ (DType::U64 | DType::C32) => {
                    return decline(format!("a number of {dtype} in host memory"));
                }
            })
        }
    }
}

fn half_to_real(bits: u16) -> f64 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    sign * match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + fraction / 1024.0) * 2f64.powi(exponent - 15),
    }
}

impl<'c> Call<'c> {
    /// The call at this address.
    ///
    /// # Safety
    /// `call` is NULL or a call of the host whose stream is this vendor's.
    pub(super) unsafe fn new(
        call: *const FlagosKernelCall,
        library: &'static Library,
    ) -> Result<Self> {
        let wrong = |what: String| Err(Error::invalid_argument("run", what));
        // SAFETY: the caller's promise, also below.
        let Some(size) = (unsafe { call.cast::<usize>().as_ref() }) else {
            return wrong("the call is NULL".into());
        };
        if *size < size_of::<FlagosKernelCall>() {
            return wrong(format!("a call of {size} bytes"));
        }
        // SAFETY: as large as it says, and its stream is one that this vendor gave.
        unsafe {
            let raw = &*call;
            if raw.stream.is_null() {
                return wrong("the stream is NULL".into());
            }
            let Some(handle) = stream_of(raw.stream).library_handle() else {
                return wrong("the stream is of another vendor".into());
            };
            let stream = handle.stream.cast::<AscendStream>().as_ref();
            Ok(Self(Context::new(raw, stream, library)))
        }
    }

    /// The outcome for the host, which computes a declined call anew. That is wrong where work of the call is queued that
    /// writes to its arguments: then the call has failed.
    pub(super) fn settle(&self, outcome: Result<()>) -> Result<()> {
        match outcome {
            Err(error)
                if error.kind() == ErrorKind::Unsupported
                    && self.has_queued()
                    && self.writes_arguments()? =>
            {
                let message = format!(
                    "a part of the operator has run, and the rest cannot: {}",
                    error.message()
                );
                Err(Error::device("aclnn", message)
                    .with_hint("please report it with the shapes and dtypes of the call"))
            }
            outcome => outcome,
        }
    }

    /// Whether a result shares memory with an argument.
    fn writes_arguments(&self) -> Result<bool> {
        let outputs = self.optional_outputs()?;
        let written = |tensor: &FlagosKernelTensor| {
            !tensor.storage.is_null()
                && outputs
                    .iter()
                    .flatten()
                    .any(|output| output.storage == tensor.storage)
        };
        for place in 0..self.num_arguments() {
            let shares = match self.value(place)? {
                Value::Tensor(tensor) => written(tensor.0),
                // SAFETY: NULL or a tensor of the call.
                Value::Tensors(tensors) => tensors
                    .iter()
                    .any(|tensor| unsafe { tensor.as_ref() }.is_some_and(written)),
                _ => false,
            };
            if shares {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The seed and the offset of the random numbers of this call.
    pub(super) fn random(&self) -> (u64, u64) {
        (self.raw.seed, self.raw.offset)
    }

    pub(super) fn num_arguments(&self) -> usize {
        self.raw.num_arguments
    }

    /// An argument by its place in the operator's schema.
    pub(super) fn value(&self, place: usize) -> Result<Value<'c>> {
        if place >= self.raw.num_arguments {
            return Err(Error::invalid_argument(
                "run",
                format!("there is no argument {place}"),
            ));
        }
        // SAFETY: as many arguments as the call says; the tag names the member, which lives as long as the call.
        unsafe {
            let value: &'c FlagosKernelValue = &*self.raw.arguments.add(place);
            let (content, count) = (value.r#as, value.count as usize);
            Ok(match value.tag {
                FLAGOS_VALUE_NONE => Value::None,
                FLAGOS_VALUE_TENSOR => Value::Tensor(Tensor(&*content.tensor)),
                FLAGOS_VALUE_TENSORS => Value::Tensors(list(content.tensors, count)),
                FLAGOS_VALUE_INT => Value::Number(Number::Whole(content.integer)),
                FLAGOS_VALUE_FLOAT => Value::Number(Number::Real(content.real)),
                FLAGOS_VALUE_COMPLEX => {
                    Value::Number(Number::Complex(*content.reals, *content.reals.add(1)))
                }
                FLAGOS_VALUE_BOOL => Value::Number(Number::Bool(content.integer != 0)),
                FLAGOS_VALUE_TEXT => Value::Text(CStr::from_ptr(content.text)),
                FLAGOS_VALUE_INTS => Value::Ints(list(content.integers, count)),
                FLAGOS_VALUE_FLOATS => Value::Floats(list(content.reals, count)),
                FLAGOS_VALUE_BOOLS => Value::Bools(list(content.bools, count)),
                FLAGOS_VALUE_DTYPE => Value::DType(content.integer as i32),
                tag => return decline(format!("argument {place} is of the unknown tag {tag}")),
            })
        }
    }

    /// A tensor of the device among the arguments; none where it was left out.
    pub(super) fn optional(&self, place: usize) -> Result<Option<View>> {
        match self.value(place)? {
            Value::None => Ok(None),
            Value::Tensor(tensor) => tensor.view().map(Some),
            _ => decline(format!("argument {place} is no tensor")),
        }
    }

    /// A tensor of the device among the arguments.
    pub(super) fn tensor(&self, place: usize) -> Result<View> {
        match self.optional(place)? {
            Some(view) => Ok(view),
            None => decline(format!("argument {place} is None")),
        }
    }

    /// A list of tensors of the device among the arguments.
    pub(super) fn tensors(&self, place: usize) -> Result<Vec<Option<View>>> {
        let Value::Tensors(tensors) = self.value(place)? else {
            return decline(format!("argument {place} is no list of tensors"));
        };
        let view = |tensor: &*const FlagosKernelTensor| {
            // SAFETY: NULL or a tensor of the call.
            let tensor = unsafe { tensor.as_ref() };
            tensor.map(|tensor| Tensor(tensor).view()).transpose()
        };
        tensors.iter().map(view).collect()
    }

    /// A whole number among the arguments.
    pub(super) fn int(&self, place: usize) -> Result<i64> {
        match self.value(place)? {
            Value::Number(Number::Whole(number)) => Ok(number),
            Value::Number(Number::Bool(value)) => Ok(value.into()),
            _ => decline(format!("argument {place} is no whole number")),
        }
    }

    /// A boolean among the arguments.
    pub(super) fn flag(&self, place: usize) -> Result<bool> {
        Ok(self.int(place)? != 0)
    }

    /// A floating-point number among the arguments; none where it was left out.
    pub(super) fn real(&self, place: usize) -> Result<Option<f64>> {
        match self.value(place)? {
            Value::None => Ok(None),
            Value::Number(Number::Real(number)) => Ok(Some(number)),
            Value::Number(Number::Whole(number)) => Ok(Some(number as f64)),
            _ => decline(format!("argument {place} is no real number")),
        }
    }

    /// A `Scalar` among the arguments.
    pub(super) fn number(&self, place: usize) -> Result<Number> {
        match self.value(place)? {
            Value::Number(number) => Ok(number),
            _ => decline(format!("argument {place} is no number")),
        }
    }

    /// A list of whole numbers among the arguments, empty where it was left out.
    pub(super) fn ints(&self, place: usize) -> Result<&'c [i64]> {
        match self.value(place)? {
            Value::Ints(numbers) => Ok(numbers),
            Value::None => Ok(&[]),
            _ => decline(format!("argument {place} is no list of whole numbers")),
        }
    }

    /// A list of booleans among the arguments.
    pub(super) fn bools(&self, place: usize) -> Result<&'c [u8]> {
        match self.value(place)? {
            Value::Bools(values) => Ok(values),
            _ => decline(format!("argument {place} is no list of booleans")),
        }
    }

    pub(super) fn num_outputs(&self) -> usize {
        self.raw.num_outputs
    }

    /// A result; none if it is not wanted.
    pub(super) fn optional_output(&self, place: usize) -> Result<Option<View>> {
        if place >= self.raw.num_outputs {
            return Err(Error::invalid_argument(
                "run",
                format!("there is no output {place}"),
            ));
        }
        // SAFETY: as many outputs as the call says, each NULL or a tensor.
        let tensor = unsafe { (*self.raw.outputs.add(place)).as_ref() };
        tensor.map(View::new).transpose()
    }

    /// A result.
    pub(super) fn output(&self, place: usize) -> Result<View> {
        match self.optional_output(place)? {
            Some(view) => Ok(view),
            None => decline(format!("the host does not want output {place}")),
        }
    }

    /// All results; none for those that are not wanted.
    pub(super) fn optional_outputs(&self) -> Result<Vec<Option<View>>> {
        (0..self.num_outputs())
            .map(|place| self.optional_output(place))
            .collect()
    }

    /// A contiguous tensor whose memory lasts for the work of this call.
    pub(super) fn temporary(&self, dtype: DType, sizes: &[i64]) -> Result<View> {
        let mut view = View::contiguous(null_mut(), dtype, sizes)?;
        view.storage = self.workspace(view.storage_nbytes)?;
        Ok(view)
    }

    /// A function of CANN that this machine has; or the call is declined.
    pub(super) fn function(&self, name: &str) -> Result<&'static Function> {
        match super::functions::function(name) {
            Some(function) if function.phases().is_some() => Ok(function),
            Some(function) => decline(function.missing()),
            None => Err(Error::internal(
                "aclnn",
                format!("functions.txt has no {name}"),
            )),
        }
    }

    /// Queues a function of CANN.
    pub(super) fn run(&self, name: &str, arguments: &[Arg<'_>]) -> Result<()> {
        launch::launch(self, self.function(name)?, arguments, true)?;
        self.note_queued();
        Ok(())
    }

    /// [`Self::run`], of a function whose numbers differ from call to call.
    pub(super) fn run_once(&self, name: &str, arguments: &[Arg<'_>]) -> Result<()> {
        launch::launch(self, self.function(name)?, arguments, false)?;
        self.note_queued();
        Ok(())
    }

    /// Queues a function and waits for it: the sizes that its tensors have then, in the order of the arguments.
    pub(super) fn measure(&self, name: &str, arguments: &[Arg<'_>]) -> Result<Vec<Vec<i64>>> {
        launch::measure(self, self.function(name)?, arguments)
    }

    /// Tells the host the sizes of a result that depend on elements.
    pub(super) fn resize(&self, output: usize, sizes: &[i64]) -> Result<()> {
        let Some(resize) = self.raw.resize else {
            return decline("the host takes no sizes of results");
        };
        // SAFETY: the host's function with its context, on the thread of `run`.
        match unsafe { resize(self.raw.context, output, sizes.as_ptr(), sizes.len()) } {
            FLAGOS_VENDOR_OK => Ok(()),
            status => Err(Error::internal(
                "resize",
                format!("output {output}, sizes {sizes:?}; status {status}"),
            )),
        }
    }

    /// The element of a tensor of float32, after all that is queued.
    pub(super) fn read_f32(&self, view: View) -> Result<f32> {
        if view.dtype != DType::F32 || view.elements() != 1 {
            return decline("a flag that is no float32");
        }
        self.flush()?;
        let mut value = 0_f32;
        // SAFETY: one element on the device, and one here; the copy is waited for.
        unsafe {
            self.stream.copy(
                (&raw mut value).cast(),
                view.data().cast(),
                size_of::<f32>(),
            )
        }?;
        self.stream.sync()?;
        Ok(value)
    }

    /// [`Self::run`] of a function that writes to temporary memory alone, after which a call can still be declined.
    fn run_aside(&self, name: &str, arguments: &[Arg<'_>]) -> Result<()> {
        launch::launch(self, self.function(name)?, arguments, true)
    }

    /// The tensor in this type: itself, or a copy that lasts for the work of this call.
    pub(super) fn cast(&self, view: View, dtype: DType) -> Result<View> {
        if view.dtype == dtype {
            return Ok(view);
        }
        let copy = self.temporary(dtype, &view.sizes)?;
        if !view.is_empty() {
            self.run_aside(
                "aclnnCast",
                &[
                    Arg::Tensor(view),
                    Arg::Word(dtype.acl() as u64),
                    Arg::Tensor(copy),
                ],
            )?;
        }
        Ok(copy)
    }

    /// The tensor side by side in memory: itself, or a copy that lasts for the work of this call.
    pub(super) fn dense(&self, view: View) -> Result<View> {
        if view.is_contiguous() {
            return Ok(view);
        }
        let copy = self.temporary(view.dtype, &view.sizes)?;
        self.run_aside("aclnnInplaceCopy", &[Arg::Tensor(copy), Arg::Tensor(view)])?;
        Ok(copy)
    }

    /// Runs work that writes to a result, and writes side by side in memory: a result that does not lie so is copied there.
    pub(super) fn write_dense(
        &self,
        output: View,
        write: impl FnOnce(View) -> Result<()>,
    ) -> Result<()> {
        if output.is_contiguous() {
            return write(output);
        }
        let dense = self.temporary(output.dtype, &output.sizes)?;
        write(dense)?;
        self.copy(output, dense)
    }

    /// Queues a copy of elements, which may be of another type, repeated as torch broadcasts.
    pub(super) fn copy(&self, to: View, from: View) -> Result<()> {
        if to.is_empty() {
            return Ok(());
        }
        self.run("aclnnInplaceCopy", &[Arg::Tensor(to), Arg::Tensor(from)])
    }

    /// A tensor without dimensions that holds the number.
    pub(super) fn filled(&self, number: Number, dtype: DType) -> Result<View> {
        let view = self.temporary(dtype, &[])?;
        self.run_aside(
            "aclnnInplaceFillScalar",
            &[Arg::Tensor(view), Arg::Scalar(number)],
        )?;
        Ok(view)
    }
}

/// # Safety
/// As many elements as said lie there; NULL is allowed for none.
unsafe fn list<'c, T>(first: *const T, count: usize) -> &'c [T] {
    match count {
        0 => &[],
        // SAFETY: the caller's promise.
        _ => unsafe { std::slice::from_raw_parts(first, count) },
    }
}

#[cfg(test)]
mod tests {
    use super::half_to_real;

    #[test]
    fn half_precision_is_read_exactly() {
        for (bits, value) in [
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0x0001, 2f64.powi(-24)),
            (0x0400, 2f64.powi(-14)),
            (0xfc00, f64::NEG_INFINITY),
        ] {
            assert_eq!(half_to_real(bits), value, "{bits:#x}");
        }
        assert!(half_to_real(0x7e00).is_nan());
    }
}
