//! Operators on Ascend devices: CANN's aclnn functions behind the interface of `flagos_kernels.h`.
//!
//! `functions.txt` declares CANN's functions, `rows.txt` tells which operator is which function, and `custom` has the
//! operators that are more than one call. Which of them a machine has is decided by its libraries, symbol by symbol.

mod cache;
mod call;
mod context;
mod custom;
mod dtype;
mod functions;
mod launch;
mod library;
mod objects;
mod prepared;
mod rows;
mod stub;
mod view;

use std::collections::HashMap;
use std::ffi::{CStr, c_char};
use std::mem::size_of;
use std::ptr::null;
use std::sync::OnceLock;

use flagos_core::error::{Error, Result};
use flagos_core::vendors::library::*;
use flagos_vendor_kit::export::{last_error, status};

pub(super) use self::library::most_executors;

use self::call::Call;
use self::custom::Custom;
use self::rows::Row;

/// The implementation of an operator.
enum Kernel {
    Row(Row),
    Custom(&'static Custom),
}

impl Kernel {
    fn name(&self) -> &CStr {
        match self {
            Self::Row(row) => &row.name,
            Self::Custom(custom) => custom.name,
        }
    }

    /// Why this machine cannot run it; none if it can.
    fn missing(&self) -> Option<String> {
        match self {
            Self::Row(row) => row.missing(),
            Self::Custom(custom) => custom.missing(),
        }
    }

    fn run(&self, call: &Call<'_>) -> Result<()> {
        match self {
            Self::Row(row) => row.run(call),
            Self::Custom(custom) => (custom.run)(call),
        }
    }
}

/// Every operator, by its name.
fn kernels() -> &'static HashMap<&'static CStr, Kernel> {
    static KERNELS: OnceLock<HashMap<&'static CStr, Kernel>> = OnceLock::new();
    KERNELS.get_or_init(|| {
        let rows = rows::read().into_iter().map(Kernel::Row);
        let all = rows.chain(custom::all().map(Kernel::Custom));
        // The names live as long as the process.
        let leaked = |kernel: Kernel| {
            let name: &'static CStr = Box::leak(kernel.name().to_owned().into_boxed_c_str());
            (name, kernel)
        };
        all.map(leaked).collect()
    })
}

unsafe extern "C" fn find(name: *const c_char, kernel: *mut *const FlagosKernel) -> i32 {
    status(super::description::description(), || {
        if name.is_null() || kernel.is_null() {
            return Err(Error::invalid_argument("find", "NULL"));
        }
        // SAFETY: a text of the host that ends with NUL.
        let name = unsafe { CStr::from_ptr(name) };
        let unsupported = |reason: String| Error::unsupported("aclnn", reason);
        let Some(found) = kernels().get(name) else {
            let name = name.to_string_lossy();
            return Err(unsupported(format!(
                "CANN has no function for {name} that flagos knows"
            )));
        };
        library::library().map_err(|reason| unsupported(reason.to_owned()))?;
        if let Some(reason) = found.missing() {
            return Err(unsupported(reason));
        }
        // SAFETY: the host's output; the table lives as long as the process.
        unsafe { kernel.write(std::ptr::from_ref(found).cast()) };
        Ok(())
    })
}

unsafe extern "C" fn run(kernel: *const FlagosKernel, call: *const FlagosKernelCall) -> i32 {
    status(super::description::description(), || {
        let library = library::library().map_err(|reason| Error::unsupported("aclnn", reason))?;
        // SAFETY: a kernel that `find` wrote, and a call of the host on a stream of this vendor.
        unsafe {
            let Some(kernel) = kernel.cast::<Kernel>().as_ref() else {
                return Err(Error::invalid_argument("run", "the kernel is NULL"));
            };
            let call = Call::new(call, library)?;
            call.settle(kernel.run(&call))
        }
    })
}

/// The names of all operators, ended by NULL.
fn names() -> &'static [Name] {
    static NAMES: OnceLock<Vec<Name>> = OnceLock::new();
    NAMES.get_or_init(|| {
        let mut names: Vec<_> = kernels().keys().collect();
        names.sort_unstable();
        let mut names: Vec<_> = names.into_iter().map(|name| Name(name.as_ptr())).collect();
        names.push(Name(null()));
        names
    })
}

#[repr(transparent)]
struct Name(*const c_char);

// SAFETY: texts that live as long as the process.
unsafe impl Send for Name {}
// SAFETY: as above.
unsafe impl Sync for Name {}

/// The table of the kernels.
pub(super) fn table() -> &'static FlagosKernels {
    struct Table(FlagosKernels);
    // SAFETY: nobody writes it.
    unsafe impl Send for Table {}
    // SAFETY: as above.
    unsafe impl Sync for Table {}
    static TABLE: OnceLock<Table> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        Table(FlagosKernels {
            struct_size: size_of::<FlagosKernels>(),
            major: FLAGOS_KERNELS_MAJOR,
            minor: FLAGOS_KERNELS_MINOR,
            last_error: Some(last_error),
            find: Some(find),
            run: Some(run),
            names: names().as_ptr().cast(),
            flags: FLAGOS_KERNELS_POST,
            reserved: [null(); 15],
        })
    });
    &table.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_operator_has_two_kernels() {
        let custom: Vec<_> = custom::all().map(|custom| custom.name).collect();
        for row in rows::read() {
            assert!(!custom.contains(&row.name.as_c_str()), "{:?}", row.name);
        }
        assert_eq!(kernels().len(), custom.len() + rows::read().len());
    }

    #[test]
    fn functions_that_hand_written_kernels_call_are_in_the_table() {
        for custom in custom::all() {
            assert!(!custom.functions.is_empty(), "{:?}", custom.name);
            for name in custom.functions {
                assert!(
                    functions::function(name).is_some(),
                    "{:?}: {name}",
                    custom.name
                );
            }
        }
    }

    #[test]
    fn an_unknown_operator_is_told_by_its_name() {
        let mut kernel = null();
        // SAFETY: a text and a valid output.
        let status = unsafe { find(c"aten::no_such".as_ptr(), &mut kernel) };
        assert_eq!(status, FLAGOS_VENDOR_UNSUPPORTED);
        // SAFETY: the text of this thread's last failure.
        let text = unsafe { CStr::from_ptr(last_error()) };
        assert!(text.to_string_lossy().contains("aten::no_such"), "{text:?}");
    }
}
