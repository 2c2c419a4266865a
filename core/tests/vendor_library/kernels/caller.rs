//! A host that calls the chip's kernels.

use std::ffi::{CStr, CString, c_void};
use std::mem::size_of as size_of_type;
use std::ptr::{null, null_mut};
use std::sync::Arc;

use flagos_core::runtime::{Stream, Vendor};
use flagos_core::vendors::library::*;
use parking_lot::Mutex;

use super::tensor::{Memory, Random, Tensor, contiguous, decode, encode, size_of};
use crate::forms::{loaded, opened};

/// A stream of the chip, and what a host needs to call kernels on it.
pub struct Caller {
    pub library: &'static Library,
    pub vendor: Arc<dyn Vendor>,
    pub stream: Arc<dyn Stream>,
    /// The workspaces of all calls.
    pub workspaces: Mutex<Vec<Memory>>,
    /// Whether a workspace is refused.
    pub full: bool,
    pub seed: u64,
    pub offset: u64,
}

/// An argument.
pub enum Value<'t> {
    None,
    Tensor(&'t Tensor),
    /// A number in host memory, with its dtype.
    Host(i32, f64),
    Int(i64),
    Float(f64),
    Bool(bool),
    Ints(Vec<i64>),
}

/// A failed call: its status and the text.
pub type Failure = (i32, String);

const POISON: i64 = 0x5555_5555_5555;

/// A tensor as a kernel sees it, with the arrays that it points at.
struct Given {
    arrays: [Box<[i64]>; 2],
    number: Box<[u8; 16]>,
    tensor: FlagosKernelTensor,
}

impl Given {
    fn new(tensor: &Tensor) -> Self {
        let storage = tensor.memory.address.as_ptr();
        let data = storage.wrapping_add(tensor.offset * size_of(tensor.dtype));
        let (num_elements, sizes) = (tensor.num_elements(), tensor.sizes.clone());
        let data = if num_elements == 0 { null_mut() } else { data };
        Self::of(
            [sizes, tensor.strides.clone()],
            (data, storage, tensor.memory.nbytes),
            (num_elements, tensor.dtype, 0),
        )
    }

    fn of(
        arrays: [Vec<i64>; 2],
        (data, storage, storage_nbytes): (*mut u8, *mut u8, usize),
        (num_elements, dtype, flags): (i64, i32, u32),
    ) -> Self {
        let arrays = arrays.map(Vec::into_boxed_slice);
        let tensor = FlagosKernelTensor {
            struct_size: size_of_type::<FlagosKernelTensor>(),
            data: data.cast(),
            storage: storage.cast(),
            storage_nbytes,
            sizes: arrays[0].as_ptr(),
            strides: arrays[1].as_ptr(),
            num_elements,
            num_dims: arrays[0].len() as i32,
            dtype,
            flags,
            reserved_word: 0,
        };
        Self {
            arrays,
            number: Box::new([0; 16]),
            tensor,
        }
    }

    fn number(dtype: i32, value: f64) -> Self {
        let flags = FLAGOS_TENSOR_HOST | FLAGOS_TENSOR_NUMBER;
        let size = size_of(dtype);
        let mut given = Self::of(
            [vec![], vec![]],
            (null_mut(), null_mut(), size),
            (1, dtype, flags),
        );
        given.number[..size].copy_from_slice(&encode(dtype, value));
        given.tensor.data = given.number.as_mut_ptr().cast();
        given.tensor.storage = given.tensor.data;
        given
    }

    /// What is valid during the call alone becomes something else after it.
    fn poison(&mut self) {
        for array in &mut self.arrays {
            array.fill(POISON);
        }
        self.number.fill(0x55);
        self.tensor.dtype = -1;
    }
}

impl Caller {
    /// A stream of a device of a chip of its own.
    pub fn new(device: usize) -> Self {
        Self::on(&opened(loaded()), device)
    }

    /// Another stream of this vendor.
    pub fn on(vendor: &Arc<dyn Vendor>, device: usize) -> Self {
        Self {
            library: loaded(),
            vendor: Arc::clone(vendor),
            stream: vendor.stream(device, 0).expect("a stream"),
            workspaces: Mutex::default(),
            full: false,
            seed: 0,
            offset: 0,
        }
    }

    /// A tensor of these bytes, whose elements lie side by side.
    pub fn of_bytes(&self, dtype: i32, sizes: &[i64], bytes: &[u8]) -> Tensor {
        let memory = Memory::new(&self.vendor, &self.stream, bytes.len());
        let address = memory.address.as_ptr();
        if !bytes.is_empty() {
            // SAFETY: allocated above; the copy has run when the sync returns.
            unsafe { self.stream.copy(address, bytes.as_ptr(), bytes.len()) }.expect("queued");
            self.stream.sync().expect("copied");
        }
        Tensor {
            memory: Arc::new(memory),
            dtype,
            offset: 0,
            sizes: sizes.to_vec(),
            strides: contiguous(sizes),
        }
    }

    /// A tensor of these numbers, whose elements lie side by side.
    pub fn tensor(&self, dtype: i32, sizes: &[i64], values: &[f64]) -> Tensor {
        assert_eq!(sizes.iter().product::<i64>(), values.len() as i64);
        let bytes: Vec<_> = values
            .iter()
            .flat_map(|&value| encode(dtype, value))
            .collect();
        self.of_bytes(dtype, sizes, &bytes)
    }

    /// A tensor of random numbers in a random layout.
    pub fn scattered(&self, random: &mut Random, dtype: i32, sizes: &[i64]) -> Tensor {
        let (strides, reach) = random.strides(sizes);
        let values: Vec<_> = (0..reach).map(|_| random.number(dtype)).collect();
        self.tensor(dtype, &[reach], &values)
            .view(0, sizes, &strides)
    }

    /// A result to be written: 119 until then.
    pub fn result(&self, dtype: i32, sizes: &[i64]) -> Tensor {
        let count = sizes.iter().product::<i64>() as usize;
        let one = if dtype == FLAGOS_DTYPE_BOOL {
            1.0
        } else {
            119.0
        };
        self.tensor(dtype, sizes, &vec![one; count])
    }

    /// The bytes of each element.
    pub fn bytes(&self, tensor: &Tensor) -> Vec<Vec<u8>> {
        let mut bytes = vec![0; tensor.memory.nbytes];
        let from = tensor.memory.address.as_ptr();
        // SAFETY: both ranges live beyond the sync.
        unsafe { self.stream.copy(bytes.as_mut_ptr(), from, bytes.len()) }.expect("queued");
        self.stream.sync().expect("copied");
        let size = size_of(tensor.dtype);
        let places = tensor.places().into_iter();
        places
            .map(|at| bytes[at * size..(at + 1) * size].to_vec())
            .collect()
    }

    /// The numbers of a tensor.
    pub fn values(&self, tensor: &Tensor) -> Vec<f64> {
        let elements = self.bytes(tensor);
        elements
            .iter()
            .map(|bytes| decode(tensor.dtype, bytes))
            .collect()
    }

    /// Calls the kernel of this name, and waits for nothing.
    pub fn queue(
        &self,
        name: &str,
        arguments: &[Value],
        outputs: &[&Tensor],
    ) -> Result<(), Failure> {
        let name = CString::new(name).expect("no NUL");
        let kernel = self
            .library
            .kernel(&name)
            .expect("an answer")
            .expect("a kernel");
        let tensor = |value: &Value| match value {
            Value::Tensor(tensor) => Some(Given::new(tensor)),
            Value::Host(dtype, number) => Some(Given::number(*dtype, *number)),
            _ => None,
        };
        let mut tensors: Vec<_> = arguments.iter().map(tensor).collect();
        let mut results: Vec<_> = outputs.iter().map(|&tensor| Given::new(tensor)).collect();
        let each = arguments.iter().zip(&tensors);
        let mut values: Vec<_> = each
            .map(|(value, tensor)| plain(value, tensor.as_ref()))
            .collect();
        let pointers: Vec<_> = results
            .iter()
            .map(|given| std::ptr::from_ref(&given.tensor))
            .collect();
        let known = self.stream.library_handle().expect("a stream of a library");
        let call = FlagosKernelCall {
            struct_size: size_of_type::<FlagosKernelCall>(),
            instance: known.instance.as_ptr().cast(),
            stream: known.stream.as_ptr().cast(),
            device: self.stream.device() as i32,
            flags: 0,
            arguments: values.as_ptr(),
            num_arguments: values.len(),
            outputs: pointers.as_ptr(),
            num_outputs: pointers.len(),
            workspace: Some(workspace),
            context: std::ptr::from_ref(self).cast_mut().cast(),
            seed: self.seed,
            offset: self.offset,
            resize: None,
            post: None,
            flush: None,
            reserved: [null(); 5],
        };
        let kernels = self.library.kernels().expect("kernels").table();
        // SAFETY: a kernel of the library, and a call as the header tells.
        let code = unsafe { (kernels.run.expect("required"))(kernel, &call) };
        tensors.iter_mut().flatten().for_each(Given::poison);
        results.iter_mut().for_each(Given::poison);
        values.iter_mut().for_each(|value| value.tag = -1);
        if code == FLAGOS_VENDOR_OK {
            return Ok(());
        }
        // SAFETY: the text is valid until this thread's next call.
        let text = unsafe { CStr::from_ptr((kernels.last_error.expect("required"))()) };
        Err((code, text.to_string_lossy().into_owned()))
    }

    /// [`Self::queue`] of a call that the chip computes.
    pub fn call(&self, name: &str, arguments: &[Value], outputs: &[&Tensor]) {
        let outcome = self.queue(name, arguments, outputs);
        outcome.unwrap_or_else(|failure| panic!("{name}: {failure:?}"));
    }

    /// The reason why the chip declines a call, which writes nothing.
    pub fn reason(&self, name: &str, arguments: &[Value], outputs: &[&Tensor]) -> String {
        let before: Vec<_> = outputs.iter().map(|output| self.bytes(output)).collect();
        let (code, text) = self.queue(name, arguments, outputs).expect_err("declined");
        assert_eq!(code, FLAGOS_VENDOR_UNSUPPORTED, "{text}");
        let after: Vec<_> = outputs.iter().map(|output| self.bytes(output)).collect();
        assert_eq!(after, before);
        text
    }
}

/// [`FlagosKernelCall::workspace`] of a [`Caller`].
unsafe extern "C" fn workspace(
    context: *mut c_void,
    nbytes: usize,
    address: *mut *mut c_void,
) -> i32 {
    // SAFETY: the context of the call above, and a valid output.
    unsafe {
        let caller = &*context.cast::<Caller>();
        if caller.full {
            return FLAGOS_VENDOR_OUT_OF_MEMORY;
        }
        let memory = Memory::new(&caller.vendor, &caller.stream, nbytes);
        address.write(memory.address.as_ptr().cast());
        caller.workspaces.lock().push(memory);
    }
    FLAGOS_VENDOR_OK
}

fn plain(value: &Value, tensor: Option<&Given>) -> FlagosKernelValue {
    let of = |tag, count: usize, r#as| FlagosKernelValue {
        tag,
        count: count as u32,
        r#as,
    };
    match (value, tensor) {
        (_, Some(given)) => {
            let tensor = std::ptr::from_ref(&given.tensor);
            of(FLAGOS_VALUE_TENSOR, 0, FlagosKernelContent { tensor })
        }
        (Value::Int(integer), _) => {
            let integer = *integer;
            of(FLAGOS_VALUE_INT, 0, FlagosKernelContent { integer })
        }
        (Value::Bool(truth), _) => {
            let integer = (*truth).into();
            of(FLAGOS_VALUE_BOOL, 0, FlagosKernelContent { integer })
        }
        (Value::Float(real), _) => {
            let real = *real;
            of(FLAGOS_VALUE_FLOAT, 0, FlagosKernelContent { real })
        }
        (Value::Ints(list), _) => {
            let integers = list.as_ptr();
            of(
                FLAGOS_VALUE_INTS,
                list.len(),
                FlagosKernelContent { integers },
            )
        }
        _ => of(FLAGOS_VALUE_NONE, 0, FlagosKernelContent { integer: 0 }),
    }
}
