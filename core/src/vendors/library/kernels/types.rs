//! The types of `include/flagos_kernels.h`, which is generated from this file.

use std::ffi::{c_char, c_void};

use super::super::types::{FlagosVendorHost, FlagosVendorInstance, FlagosVendorStream};

/// Version of the interface, major. Host and library must agree on it.
pub const FLAGOS_KERNELS_MAJOR: u32 = 1;

/// Version of the interface, minor: raised when members are appended, or bits, tags or reserved slots get a meaning.
/// Host and library of different minor versions work together.
pub const FLAGOS_KERNELS_MINOR: u32 = 2;

/// `FlagosKernelTensor::dtype`: unsigned, 8 bits. The numbers are those of torch's `c10::ScalarType`; a tensor may have
/// one that has no name here.
pub const FLAGOS_DTYPE_UINT8: i32 = 0;
/// `FlagosKernelTensor::dtype`: signed, 8 bits.
pub const FLAGOS_DTYPE_INT8: i32 = 1;
/// `FlagosKernelTensor::dtype`: signed, 16 bits.
pub const FLAGOS_DTYPE_INT16: i32 = 2;
/// `FlagosKernelTensor::dtype`: signed, 32 bits.
pub const FLAGOS_DTYPE_INT32: i32 = 3;
/// `FlagosKernelTensor::dtype`: signed, 64 bits.
pub const FLAGOS_DTYPE_INT64: i32 = 4;
/// `FlagosKernelTensor::dtype`: IEEE 754 binary16.
pub const FLAGOS_DTYPE_FLOAT16: i32 = 5;
/// `FlagosKernelTensor::dtype`: IEEE 754 binary32.
pub const FLAGOS_DTYPE_FLOAT32: i32 = 6;
/// `FlagosKernelTensor::dtype`: IEEE 754 binary64.
pub const FLAGOS_DTYPE_FLOAT64: i32 = 7;
/// `FlagosKernelTensor::dtype`: real and imaginary part, each binary16.
pub const FLAGOS_DTYPE_COMPLEX32: i32 = 8;
/// `FlagosKernelTensor::dtype`: real and imaginary part, each binary32.
pub const FLAGOS_DTYPE_COMPLEX64: i32 = 9;
/// `FlagosKernelTensor::dtype`: real and imaginary part, each binary64.
pub const FLAGOS_DTYPE_COMPLEX128: i32 = 10;
/// `FlagosKernelTensor::dtype`: a byte, 0 or 1.
pub const FLAGOS_DTYPE_BOOL: i32 = 11;
/// `FlagosKernelTensor::dtype`: the upper 16 bits of a binary32.
pub const FLAGOS_DTYPE_BFLOAT16: i32 = 15;
/// `FlagosKernelTensor::dtype`: 8 bits, 5 of the exponent.
pub const FLAGOS_DTYPE_FLOAT8_E5M2: i32 = 23;
/// `FlagosKernelTensor::dtype`: 8 bits, 4 of the exponent, finite.
pub const FLAGOS_DTYPE_FLOAT8_E4M3FN: i32 = 24;
/// `FlagosKernelTensor::dtype`: 8 bits, 5 of the exponent, finite, without a negative zero.
pub const FLAGOS_DTYPE_FLOAT8_E5M2FNUZ: i32 = 25;
/// `FlagosKernelTensor::dtype`: 8 bits, 4 of the exponent, finite, without a negative zero.
pub const FLAGOS_DTYPE_FLOAT8_E4M3FNUZ: i32 = 26;
/// `FlagosKernelTensor::dtype`: unsigned, 16 bits.
pub const FLAGOS_DTYPE_UINT16: i32 = 27;
/// `FlagosKernelTensor::dtype`: unsigned, 32 bits.
pub const FLAGOS_DTYPE_UINT32: i32 = 28;
/// `FlagosKernelTensor::dtype`: unsigned, 64 bits.
pub const FLAGOS_DTYPE_UINT64: i32 = 29;

/// `FlagosKernelTensor::flags`: `data` is host memory and readable at once, of a tensor without dimensions. Copy the
/// value in `run`, since the memory is valid no longer.
pub const FLAGOS_TENSOR_HOST: u32 = 1;

/// `FlagosKernelTensor::flags`: the tensor stands for a number of the program, and takes part in type promotion as one.
pub const FLAGOS_TENSOR_NUMBER: u32 = 2;

/// `FlagosKernelTensor::flags`: elements stand for their conjugates. Never set in version 1.0: the host resolves it.
pub const FLAGOS_TENSOR_CONJUGATE: u32 = 4;

/// `FlagosKernelTensor::flags`: elements stand for their negatives. Never set in version 1.0: the host resolves it.
pub const FLAGOS_TENSOR_NEGATIVE: u32 = 8;

/// `FlagosKernelValue::tag`: no value: None, an undefined tensor, a generator or a device.
pub const FLAGOS_VALUE_NONE: i32 = 0;
/// `FlagosKernelValue::tag`: `as.tensor`.
pub const FLAGOS_VALUE_TENSOR: i32 = 1;
/// `FlagosKernelValue::tag`: `count` of `as.tensors`.
pub const FLAGOS_VALUE_TENSORS: i32 = 2;
/// `FlagosKernelValue::tag`: `as.integer`; also a layout or a memory format, as torch numbers them.
pub const FLAGOS_VALUE_INT: i32 = 3;
/// `FlagosKernelValue::tag`: `as.real`.
pub const FLAGOS_VALUE_FLOAT: i32 = 4;
/// `FlagosKernelValue::tag`: `as.reals`, the real and the imaginary part; `count` is 2.
pub const FLAGOS_VALUE_COMPLEX: i32 = 5;
/// `FlagosKernelValue::tag`: `as.integer`, 0 or 1.
pub const FLAGOS_VALUE_BOOL: i32 = 6;
/// `FlagosKernelValue::tag`: `as.text`, UTF-8, which ends with NUL; `count` is the number of bytes before it.
pub const FLAGOS_VALUE_TEXT: i32 = 7;
/// `FlagosKernelValue::tag`: `count` of `as.integers`.
pub const FLAGOS_VALUE_INTS: i32 = 8;
/// `FlagosKernelValue::tag`: `count` of `as.reals`.
pub const FLAGOS_VALUE_FLOATS: i32 = 9;
/// `FlagosKernelValue::tag`: `count` of `as.bools`, each 0 or 1.
pub const FLAGOS_VALUE_BOOLS: i32 = 10;
/// `FlagosKernelValue::tag`: `as.integer`, one of `FLAGOS_DTYPE_*`.
pub const FLAGOS_VALUE_DTYPE: i32 = 11;

/// `FlagosKernelCall::flags`: the user asks for algorithms that give the same bits each time. A kernel that has none
/// declines.
pub const FLAGOS_CALL_DETERMINISTIC: u32 = 1;

/// `FlagosKernels::flags`: kernels post their work where the host lets them (`FlagosKernelCall::post`), and call `flush`
/// before they queue work by themselves or wait for the stream. Before it calls a kernel of another library, the host waits
/// until everything posted has been queued.
pub const FLAGOS_KERNELS_POST: u64 = 1;

/// A tensor of a call: strided, and of the call's device unless `flags` says otherwise. Strides are never negative, and
/// 0 where elements are repeated.
#[repr(C)]
#[derive(Debug)]
pub struct FlagosKernelTensor {
    /// `sizeof(FlagosKernelTensor)` of the host: members beyond it do not exist.
    pub struct_size: usize,
    /// The first element; may be NULL where there is no element.
    pub data: *mut c_void,
    /// The memory that all elements lie in; may be NULL where there is no element.
    pub storage: *mut c_void,
    /// The bytes from `storage` that belong to it. Other tensors of the call may lie in the same storage.
    pub storage_nbytes: usize,
    /// The number of elements along each of `num_dims` dimensions.
    pub sizes: *const i64,
    /// From one index to the next along each of `num_dims` dimensions, in elements.
    pub strides: *const i64,
    /// The product of `sizes`: 1 without dimensions.
    pub num_elements: i64,
    /// The number of dimensions, at least 0. NULL `sizes` and `strides` are allowed for 0.
    pub num_dims: i32,
    /// The type of the elements: one of `FLAGOS_DTYPE_*`.
    pub dtype: i32,
    /// Bits `FLAGOS_TENSOR_*`.
    pub flags: u32,
    /// 0.
    pub reserved_word: u32,
}

/// The content of a value: the member that its tag names. A list may be NULL where `count` is 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub union FlagosKernelContent {
    /// A tensor, not NULL.
    pub tensor: *const FlagosKernelTensor,
    /// Tensors; NULL for those that are undefined.
    pub tensors: *const *const FlagosKernelTensor,
    /// A whole number.
    pub integer: i64,
    /// A floating-point number.
    pub real: f64,
    /// A text.
    pub text: *const c_char,
    /// Whole numbers.
    pub integers: *const i64,
    /// Floating-point numbers.
    pub reals: *const f64,
    /// Booleans.
    pub bools: *const u8,
}

/// An argument of a call. Its size is fixed within a major version, since arguments lie side by side.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FlagosKernelValue {
    /// One of `FLAGOS_VALUE_*`.
    pub tag: i32,
    /// The length of a list or a text.
    pub count: u32,
    /// The value.
    pub r#as: FlagosKernelContent,
}

/// A call of an operator. The struct and all it points at are valid during `run` only: a kernel copies what its queued
/// work needs, such as sizes and strides. Device memory of the tensors stays valid until the work queued on `stream`
/// during `run` has finished.
#[repr(C)]
#[derive(Debug)]
pub struct FlagosKernelCall {
    /// `sizeof(FlagosKernelCall)` of the host: members beyond it do not exist.
    pub struct_size: usize,
    /// The opened vendor.
    pub instance: *mut FlagosVendorInstance,
    /// The stream to queue on, of `device`.
    pub stream: *mut FlagosVendorStream,
    /// The device of the tensors.
    pub device: i32,
    /// Bits `FLAGOS_CALL_*`.
    pub flags: u32,
    /// The arguments in the order of the operator's schema, with those that the program left out. `out` arguments are
    /// not among them. A `Scalar` is an INT, FLOAT, COMPLEX or BOOL.
    pub arguments: *const FlagosKernelValue,
    /// The number of `arguments`.
    pub num_arguments: usize,
    /// The results in the order of the operator's schema, those of a list one after the other; NULL for a result that
    /// is not wanted. Of an operator that writes to several arguments these arguments. The host has allocated them with the shape, strides and dtype that torch gives them. An output may
    /// be an argument (in place) or lie in other memory, and overlaps no argument in part.
    pub outputs: *const *const FlagosKernelTensor,
    /// The number of `outputs`.
    pub num_outputs: usize,
    /// Gives device memory, aligned to 512 bytes, to work that is queued on `stream` during this call: the host reuses
    /// it in the order of the stream. May be called several times, on the thread of `run`. Returns one of
    /// `FLAGOS_VENDOR_*`, and writes the address on success. After a failure `run` returns that status, and the host
    /// knows the text.
    pub workspace: Option<
        unsafe extern "C" fn(context: *mut c_void, nbytes: usize, address: *mut *mut c_void) -> i32,
    >,
    /// What `workspace` is called with.
    pub context: *mut c_void,
    /// The seed of the random numbers.
    pub seed: u64,
    /// With `seed` the beginning of the random numbers of this call. Another call gets another pair, unless the program
    /// sets its generator back, and then the numbers have to be the same again: as many as the call draws, they are a
    /// function of `seed`, `offset` and their index.
    pub offset: u64,
    /// Tells the sizes of a result that depend on elements, as those of `aten::nonzero`. The host has allocated the most
    /// elements that there can be, side by side, and the result consists of the first of them. To be called on the thread
    /// of `run`, after the work. Returns one of `FLAGOS_VENDOR_*`. NULL in hosts of version 1.0, which ask for no such
    /// operators.
    pub resize: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            output: usize,
            sizes: *const i64,
            num_dims: usize,
        ) -> i32,
    >,
    /// Takes a part of the call that queues work on `stream`, to be called on another thread, or at once, in the order in
    /// which parts of the stream are posted: `run(argument, 1)` queues the work and returns one of `FLAGOS_VENDOR_*`, with
    /// the text in `last_error` of that thread; `run(argument, 0)` only frees what belongs to the part. Exactly one of them is
    /// called once, also where `post` fails. A call cannot be declined any more there. The memory of the call's tensors
    /// and workspaces is valid then, and `FlagosKernelCall` is not. Returns one of `FLAGOS_VENDOR_*`; after a failure, which
    /// may be of an earlier call, `run` of the kernel returns that status, and the host knows the text. NULL where the host
    /// wants everything to be queued during the call.
    pub post: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            run: unsafe extern "C" fn(argument: *mut c_void, queues: i32) -> i32,
            argument: *mut c_void,
        ) -> i32,
    >,
    /// Waits until everything that was posted for `stream` has been queued. Returns as `post` does. NULL where there is
    /// nothing to wait for.
    pub flush: Option<unsafe extern "C" fn(context: *mut c_void) -> i32>,
    /// NULL.
    pub reserved: [*const c_void; 5],
}

/// The implementation of an operator, as the library keeps it.
pub struct FlagosKernel;

/// The kernels of a library. Lives, and stays as it is, as long as the process.
///
/// The rules of `FlagosVendor` hold: every function may be called from any thread, lets no exception out, and returns
/// one of `FLAGOS_VENDOR_*`.
#[repr(C)]
#[derive(Debug)]
pub struct FlagosKernels {
    /// `sizeof(FlagosKernels)` of the library: members beyond it do not exist.
    pub struct_size: usize,
    /// `FLAGOS_KERNELS_MAJOR` of the library.
    pub major: u32,
    /// `FLAGOS_KERNELS_MINOR` of the library.
    pub minor: u32,
    /// The text of the last failure on this thread, as `FlagosVendor::last_error`. May be the same function.
    pub last_error: Option<unsafe extern "C" fn() -> *const c_char>,
    /// Writes the kernel of an operator, such as `aten::add.Tensor`, which lives as long as the process. In-place and
    /// `out` forms are asked for by the name of the functional operator, and differ in their outputs alone.
    /// `FLAGOS_VENDOR_UNSUPPORTED` where there is no such kernel. Initialises nothing.
    pub find:
        Option<unsafe extern "C" fn(name: *const c_char, kernel: *mut *const FlagosKernel) -> i32>,
    /// Queues the call on its stream, and does not wait. `FLAGOS_VENDOR_UNSUPPORTED` declines the call: nothing is
    /// queued or written, the host computes it, and `last_error` tells why. Any other failure is the program's. Failures
    /// of queued work are reported as those of copies are.
    pub run: Option<
        unsafe extern "C" fn(kernel: *const FlagosKernel, call: *const FlagosKernelCall) -> i32,
    >,
    /// The names that `find` knows, for reports, ended by NULL. NULL for a library that does not tell.
    pub names: *const *const c_char,
    /// Bits `FLAGOS_KERNELS_*`.
    pub flags: u64,
    /// NULL.
    pub reserved: [*const c_void; 15],
}

/// The function that a library with kernels exports beside `flagos_vendor`, named `flagos_kernels`. Returns its table, of
/// a major version that the host takes, or NULL, and then writes the reason (static text). The versions in `host` are
/// those of this interface. Initialises nothing, and may be called again. Without the function there are no kernels,
/// which a vendor with `FLAGOS_VENDOR_SERVED_BY_LIBRARY` may not lack.
pub type FlagosKernelsEntry = Option<
    unsafe extern "C" fn(
        host: *const FlagosVendorHost,
        reason: *mut *const c_char,
    ) -> *const FlagosKernels,
>;
