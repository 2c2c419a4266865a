//! The table of the kernels.

use std::ffi::{CStr, c_char};
use std::mem::size_of;
use std::ptr::null;

use flagos_core::Error;
use flagos_core::vendors::library::{
    FLAGOS_KERNELS_MAJOR, FLAGOS_KERNELS_MINOR, FlagosKernel, FlagosKernelCall, FlagosKernels,
};
use flagos_vendor_kit::export::Export;
use flagos_vendor_kit::export::{last_error, status};

use crate::call::Call;
use crate::operators::{OPERATORS, Operator};
use crate::vendor::Cudalib;

/// A value that is shared by all threads, and not written.
struct Shared<T>(T);

// SAFETY: the pointers inside are to statics, and nobody writes them.
unsafe impl<T> Sync for Shared<T> {}

const COUNT: usize = OPERATORS.len();

/// The operators' names, ended by NULL.
static NAMES: Shared<[*const c_char; COUNT + 1]> = Shared({
    let mut names = [null(); COUNT + 1];
    let mut index = 0;
    while index < COUNT {
        names[index] = OPERATORS[index].name.as_ptr();
        index += 1;
    }
    names
});

static TABLE: Shared<FlagosKernels> = Shared(FlagosKernels {
    struct_size: size_of::<FlagosKernels>(),
    major: FLAGOS_KERNELS_MAJOR,
    minor: FLAGOS_KERNELS_MINOR,
    last_error: Some(last_error),
    find: Some(find),
    run: Some(run),
    names: (&raw const NAMES.0).cast(),
    flags: 0,
    reserved: [null(); 15],
});

/// The table.
pub fn table() -> &'static FlagosKernels {
    &TABLE.0
}

/// `FlagosKernels::find`.
unsafe extern "C" fn find(name: *const c_char, out: *mut *const FlagosKernel) -> i32 {
    status(Cudalib::description(), || {
        if name.is_null() || out.is_null() {
            let message = "the name or the output is NULL";
            return Err(Error::invalid_argument("find", message));
        }
        // SAFETY: a text of the host.
        let name = unsafe { CStr::from_ptr(name) };
        let found = OPERATORS.iter().find(|operator| operator.name == name);
        let operator = found.ok_or_else(|| {
            let message = format!("there is no kernel of {}", name.to_string_lossy());
            Error::unsupported("find", message)
        })?;
        // SAFETY: a valid output.
        unsafe { out.write(std::ptr::from_ref(operator).cast()) };
        Ok(())
    })
}

/// `FlagosKernels::run`.
unsafe extern "C" fn run(kernel: *const FlagosKernel, call: *const FlagosKernelCall) -> i32 {
    status(Cudalib::description(), || {
        // SAFETY: NULL, or written by `find`.
        let operator = unsafe { kernel.cast::<Operator>().as_ref() };
        let operator =
            operator.ok_or_else(|| Error::invalid_argument("run", "the kernel is NULL"))?;
        // SAFETY: a call of the host, valid during this function.
        (operator.run)(&unsafe { Call::new(call) }?)
    })
}
