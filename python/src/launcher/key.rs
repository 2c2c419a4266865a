//! The key of a call: the types, alignments and values that decide which compiled kernel serves the call.
//!
//! Triton distinguishes arguments by `specialize_impl` (`native_specialize_impl` in `triton/runtime/jit.py`),
//! FlagGems by `LibEntry.key`. A key here is as fine as theirs or finer, so that one kernel serves all calls
//! with equal keys. A finer key costs only that plans for one kernel are made more than once.

use std::mem::MaybeUninit;
use std::sync::OnceLock;

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::ffi as py_ffi;
use pyo3::intern;
use pyo3::prelude::*;

use super::ffi::{self, Object};
use super::memory::Memory;
use super::outcome::Reason;
use super::pack::Value;
use super::tensor;

/// The role of an argument, which decides what of it is part of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A specialised parameter of Triton's: dtype and alignment; of a number whether it is 1, whether it is divisible by
    /// 16, and its width.
    Traits,
    /// A parameter of Triton's that is not specialised: dtype and alignment; of a number its width.
    Class,
    /// A parameter of FlagGems': dtype and alignment; of a number its value.
    Value,
    /// A compile-time constant or a compiler option: its value, or its identity where the value cannot change.
    Constant,
    /// The grid.
    Grid,
    /// The flag that makes the call a warm-up.
    Warmup,
}

impl Role {
    /// The role of this name in `torch_fl.launcher`.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "traits" => Self::Traits,
            "class" => Self::Class,
            "value" => Self::Value,
            "constant" => Self::Constant,
            "grid" => Self::Grid,
            "warmup" => Self::Warmup,
            _ => return None,
        })
    }
}

/// The most words of a key.
const WORDS: usize = 256;
/// The most arguments of a native launch.
pub const ARGUMENTS: usize = 128;

/// A key while it is written.
pub struct Key<'m> {
    memory: &'m Memory,
    /// The first `length` words are written. The others stay uninitialised, because writing them would cost too much at
    /// every launch.
    words: [MaybeUninit<u64>; WORDS],
    length: usize,
}

// The first word of each argument has one of these tags.
const TENSOR: u64 = 1 << 56;
const POINTER: u64 = 2 << 56;
const TRAITS: u64 = 3 << 56;
const INT: u64 = 4 << 56;
const BOOL: u64 = 5 << 56;
const FLOAT: u64 = 6 << 56;
const NONE: u64 = 7 << 56;
const OBJECT: u64 = 8 << 56;
const TUPLE: u64 = 9 << 56;
/// The mark of an argument whose value is part of the key.
const BY_VALUE: u64 = 1 << 48;

/// The alignment, and the divisor, that Triton specialises for.
const ALIGNMENT: u64 = 16;

impl<'m> Key<'m> {
    /// A key that begins with the number of the device, for kernels that reach this memory.
    #[inline]
    pub fn new(device: u64, memory: &'m Memory) -> Self {
        let mut key = Self {
            memory,
            words: [MaybeUninit::uninit(); WORDS],
            length: 1,
        };
        key.words[0].write(device);
        key
    }

    #[inline]
    fn push(&mut self, word: u64) -> Result<(), Reason> {
        let slot = self.words.get_mut(self.length).ok_or(Reason::Arguments)?;
        slot.write(word);
        self.length += 1;
        Ok(())
    }

    /// The words written so far.
    #[inline]
    pub fn words(&self) -> &[u64] {
        // SAFETY: `new` and `push` write a word before they count it.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.length) }
    }

    /// Writes an argument, and reads its value.
    ///
    /// # Safety
    /// The GIL is held and the object is alive.
    #[inline]
    pub unsafe fn read(
        &mut self,
        py: Python<'_>,
        object: Object,
        role: Role,
    ) -> Result<Value, Reason> {
        let types = Types::get();
        // SAFETY: the caller's promise, here and below.
        unsafe {
            if role != Role::Constant {
                if let Some(tensor) = tensor::read(object) {
                    let address = self.memory.reach(tensor)?;
                    let aligned = u64::from(tensor.address % ALIGNMENT == 0);
                    self.push(TENSOR | aligned << 40 | u64::from(tensor.dtype as u32))?;
                    return Ok(Value::Address(address));
                }
            }
            let kind = ffi::type_of(object);
            if kind == types.int {
                let value = integer(object)?;
                self.integer(value, role)?;
                return Ok(value);
            }
            if kind == types.float {
                let number = py_ffi::PyFloat_AsDouble(object);
                if matches!(role, Role::Value | Role::Constant) {
                    self.push(FLOAT | BY_VALUE)?;
                    self.push(number.to_bits())?;
                } else {
                    self.push(FLOAT)?;
                }
                return Ok(Value::Float(number));
            }
            if kind == types.bool {
                let flag = object == py_ffi::Py_True();
                let by_value = matches!(role, Role::Value | Role::Constant);
                self.push(
                    BOOL | if by_value {
                        BY_VALUE | u64::from(flag)
                    } else {
                        0
                    },
                )?;
                return Ok(Value::Bool(flag));
            }
            if object == py_ffi::Py_None() {
                self.push(NONE)?;
                return Ok(Value::None);
            }
            if role == Role::Constant {
                self.constant(py, object, kind, types, 0)?;
                return Ok(Value::Other);
            }
            self.pointer(py, object)
        }
    }

    fn integer(&mut self, value: Value, role: Role) -> Result<(), Reason> {
        let (bits, width) = match value {
            Value::Int(number) if i32::try_from(number).is_ok() => (number as u64, 0),
            Value::Int(number) => (number as u64, 1),
            Value::Large(number) => (number, 2),
            _ => return Err(Reason::Arguments),
        };
        match role {
            Role::Traits => {
                let one = u64::from(width == 0 && bits == 1);
                // The bits, in two's complement, are divisible by 16 when the value is.
                let divisible = u64::from(bits % ALIGNMENT == 0);
                self.push(TRAITS | one << 9 | divisible << 8 | width)
            }
            Role::Class => self.push(TRAITS | width),
            _ => {
                self.push(INT | BY_VALUE | width)?;
                self.push(bits)
            }
        }
    }

    /// Writes a constant that is not a number: the identity of an object whose value cannot change, and tuples of
    /// constants. Refuses other objects.
    unsafe fn constant(
        &mut self,
        py: Python<'_>,
        object: Object,
        kind: usize,
        types: &Types,
        depth: usize,
    ) -> Result<(), Reason> {
        if kind == types.string || types.constants.contains(&kind) {
            self.push(OBJECT)?;
            return self.push(object as u64);
        }
        if kind != types.tuple || depth > 2 {
            return Err(Reason::Arguments);
        }
        // SAFETY: a tuple, and indices within it.
        unsafe {
            let count = py_ffi::PyTuple_Size(object);
            self.push(TUPLE | count as u64)?;
            for index in 0..count {
                let element = py_ffi::PyTuple_GetItem(object, index);
                let kind = ffi::type_of(element);
                if kind == types.tuple || kind == types.string || types.constants.contains(&kind) {
                    self.constant(py, element, kind, types, depth + 1)?;
                } else if [types.int, types.float, types.bool].contains(&kind)
                    || element == py_ffi::Py_None()
                {
                    self.read(py, element, Role::Constant)?;
                } else {
                    return Err(Reason::Arguments);
                }
            }
        }
        Ok(())
    }

    /// Writes an object with a `data_ptr` and a `dtype`, which Triton and FlagGems ask in the same way.
    #[cold]
    unsafe fn pointer(&mut self, py: Python<'_>, object: Object) -> Result<Value, Reason> {
        // SAFETY: the caller's promise.
        let object = unsafe { Bound::from_borrowed_ptr(py, object) };
        let ask = || -> PyResult<(u64, usize)> {
            let dtype = object.getattr(intern!(py, "dtype"))?;
            let address = object.getattr(intern!(py, "data_ptr"))?.call0()?;
            Ok((address.extract()?, dtype.as_ptr() as usize))
        };
        let (address, dtype) = ask().map_err(|error| {
            // The original path asks again, and raises the error again; only an interrupt has to be repeated.
            if error.is_instance_of::<PyKeyboardInterrupt>(py) {
                // SAFETY: the GIL is held.
                unsafe { py_ffi::PyErr_SetInterrupt() };
            }
            Reason::Arguments
        })?;
        let aligned = u64::from(address % ALIGNMENT == 0);
        self.push(POINTER | aligned << 40)?;
        self.push(dtype as u64)?;
        let device_type = i32::MAX;
        let tensor = tensor::Tensor {
            address,
            dtype: 0,
            device_type,
        };
        self.memory.reach(tensor).map(Value::Address)
    }
}

/// # Safety
/// The GIL is held, and the object is an `int`.
#[inline]
unsafe fn integer(object: Object) -> Result<Value, Reason> {
    let mut overflow = 0;
    // SAFETY: the caller's promise; raises nothing.
    let number = unsafe { py_ffi::PyLong_AsLongLongAndOverflow(object, &mut overflow) };
    if overflow == 0 {
        return Ok(Value::Int(number));
    }
    if overflow < 0 {
        return Err(Reason::Arguments);
    }
    // SAFETY: the caller's promise; what it raises is cleared.
    unsafe {
        let number = py_ffi::PyLong_AsUnsignedLongLong(object);
        if number == u64::MAX && !py_ffi::PyErr_Occurred().is_null() {
            py_ffi::PyErr_Clear();
            return Err(Reason::Arguments);
        }
        Ok(Value::Large(number))
    }
}

/// The value of a constant, as a launch plan keeps it for a parameter; `None` for an object that is no number.
pub fn value_of(object: &Bound<'_, PyAny>) -> Option<Value> {
    let mut key = Key::new(0, &Memory::NONE);
    // SAFETY: alive, and the GIL is held.
    let value = unsafe { key.read(object.py(), object.as_ptr(), Role::Constant) };
    value.ok().filter(|value| *value != Value::Other)
}

/// The types that the type of every argument is compared with.
struct Types {
    int: usize,
    float: usize,
    bool: usize,
    string: usize,
    tuple: usize,
    /// Types whose objects never change, so that an object's identity stands for its value.
    constants: Box<[usize]>,
}

static TYPES: OnceLock<Types> = OnceLock::new();

impl Types {
    #[inline]
    fn get() -> &'static Self {
        TYPES.get_or_init(|| Self::new(&[]))
    }

    fn new(constants: &[Bound<'_, PyAny>]) -> Self {
        Self {
            int: (&raw const py_ffi::PyLong_Type) as usize,
            float: (&raw const py_ffi::PyFloat_Type) as usize,
            bool: (&raw const py_ffi::PyBool_Type) as usize,
            string: (&raw const py_ffi::PyUnicode_Type) as usize,
            tuple: (&raw const py_ffi::PyTuple_Type) as usize,
            constants: constants
                .iter()
                .map(|kind| kind.clone().unbind().into_ptr() as usize)
                .collect(),
        }
    }
}

/// Declares the types whose objects never change, before the first launch. False when they were declared already.
pub fn declare_constants(types: &[Bound<'_, PyAny>]) -> bool {
    TYPES.set(Types::new(types)).is_ok()
}
