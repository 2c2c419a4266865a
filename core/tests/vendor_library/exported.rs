//! Vendors with a flaw, exported as a table.

use std::cell::{Cell, RefCell};
use std::ffi::{CString, c_char};
use std::ptr::null;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, LazyLock, OnceLock};

use flagos_core::Result;
use flagos_core::runtime::Vendor;
use flagos_core::vendors::library::*;
use flagos_core::vendors::{Description, Serving};
use flagos_vendor_kit::export::{Export, Table};

use crate::broken::{Broken, Flaw};

thread_local! {
    static FLAW: Cell<Flaw> = const { Cell::new(Flaw::None) };
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// The vendor that [`FLAW`] names, by the count that the host keeps or without one.
struct Flawed<const COUNTS: bool>;

impl<const COUNTS: bool> Export for Flawed<COUNTS> {
    fn description() -> &'static Description {
        static DESCRIPTION: LazyLock<Description> = LazyLock::new(|| Description {
            name: "exported".into(),
            version: "1".into(),
            aliases: vec!["one".into(), "two".into()],
            variables: Vec::new(),
            libraries: Vec::new(),
            device_lost: vec!["LOST".into()],
            collective_engine: None,
            triton_backend: Some("triton".into()),
            flaggems_vendor: None,
            serving: Serving::Library,
            dlpack_device_type: 1,
        });
        &DESCRIPTION
    }
    fn capabilities() -> u64 {
        u64::from(COUNTS) * FLAGOS_VENDOR_HOST_COMPUTES
    }
    fn probe() -> Result<usize, String> {
        Ok(1)
    }
    fn open(pending: &'static AtomicU64) -> Result<Arc<dyn Vendor>> {
        let pending = match FLAW.get() {
            // The host reads its own number, and asks the vendor for none.
            Flaw::PendingIsZero => Box::leak(Box::default()),
            _ => pending,
        };
        Ok(Arc::new(Broken::new(FLAW.get(), pending)))
    }
}

/// Opens the vendor with this flaw, through its table.
pub fn open(flaw: Flaw) -> Arc<dyn Vendor> {
    FLAW.set(flaw);
    // Without the capability the library gets no count.
    let entry = match flaw {
        Flaw::PendingIsIdle => entry_of::<false>,
        _ => entry_of::<true>,
    };
    // SAFETY: an exported vendor keeps to the header.
    let library = unsafe { Library::adopt("exported", Some(entry), Some(kernels_entry)) }
        .expect("it is taken");
    flagos_core::vendors::library::open(library, Box::leak(Box::default())).expect("it opens")
}

unsafe extern "C" fn entry_of<const COUNTS: bool>(
    _: *const FlagosVendorHost,
    _: *mut *const c_char,
) -> *const FlagosVendor {
    let mut table = table(COUNTS);
    if FLAW.get() == Flaw::ManyDefaults {
        // An exported vendor has one handle for its default stream, whatever it says.
        table.stream_default = Some(another_stream);
    }
    Box::leak(Box::new(table))
}

unsafe extern "C" fn another_stream(
    instance: *mut FlagosVendorInstance,
    device: i32,
    out: *mut *mut FlagosVendorStream,
) -> i32 {
    let create = table(true).stream_create.expect("the table is whole");
    // SAFETY: as the caller says.
    unsafe { create(instance, device, 0, out) }
}

/// The description of the table.
pub fn description() -> FlagosVendorDescription {
    // SAFETY: the table's own description, which lives as long as the process.
    unsafe { std::ptr::read(table(true).description) }
}

/// The table, without a flaw of its own: its instances have those of `FLAW` when they are opened.
pub fn table(host_computes: bool) -> FlagosVendor {
    static TABLES: [OnceLock<Table>; 2] = [const { OnceLock::new() }; 2];
    let made = if host_computes {
        TABLES[1].get_or_init(|| Table::new::<Flawed<true>>().expect("texts"))
    } else {
        TABLES[0].get_or_init(|| Table::new::<Flawed<false>>().expect("texts"))
    };
    // SAFETY: a table is data; what it points at lives as long as the process.
    unsafe { std::ptr::read(made.raw()) }
}

/// The entry function of its kernels.
pub unsafe extern "C" fn kernels_entry(
    _: *const FlagosVendorHost,
    _: *mut *const c_char,
) -> *const FlagosKernels {
    Box::leak(Box::new(kernels()))
}

/// Kernels that are for no operator.
pub fn kernels() -> FlagosKernels {
    unsafe extern "C" fn last_error() -> *const c_char {
        LAST_ERROR.with_borrow(|text| text.as_ptr())
    }
    unsafe extern "C" fn find(_: *const c_char, _: *mut *const FlagosKernel) -> i32 {
        LAST_ERROR.set(c"no kernels".into());
        FLAGOS_VENDOR_UNSUPPORTED
    }
    unsafe extern "C" fn run(_: *const FlagosKernel, _: *const FlagosKernelCall) -> i32 {
        FLAGOS_VENDOR_INTERNAL
    }
    FlagosKernels {
        struct_size: size_of::<FlagosKernels>(),
        major: FLAGOS_KERNELS_MAJOR,
        minor: FLAGOS_KERNELS_MINOR,
        last_error: Some(last_error),
        find: Some(find),
        run: Some(run),
        names: null(),
        flags: 0,
        reserved: [null(); 15],
    }
}
