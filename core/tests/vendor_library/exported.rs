//! Any vendor of Rust as a table of `flagos_vendor.h`.

use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_void, CString};
use std::ptr::{null, NonNull};
use std::sync::atomic::AtomicU64;
use std::sync::Arc;

use flagos_core::runtime::{Event, Stream, Vendor};
use flagos_core::vendors::library::*;
use flagos_core::Result;

use crate::broken::{Broken, Flaw};

thread_local! {
    static FLAW: Cell<Flaw> = const { Cell::new(Flaw::None) };
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Opens the vendor with this flaw, through its table.
pub fn open(flaw: Flaw) -> Arc<dyn Vendor> {
    FLAW.set(flaw);
    // SAFETY: the table below keeps to the header.
    let library = unsafe { Library::adopt("exported", Some(entry)) }.expect("it is taken");
    flagos_core::vendors::library::open(library, Arc::default()).expect("it opens")
}

unsafe extern "C" fn entry(
    _: *const FlagosVendorHost,
    _: *mut *const c_char,
) -> *const FlagosVendor {
    Box::leak(Box::new(table(FLAW.get() != Flaw::PendingIsIdle)))
}

/// The description of the table.
pub fn description() -> FlagosVendorDescription {
    FlagosVendorDescription {
        struct_size: size_of::<FlagosVendorDescription>(),
        name: c"exported".as_ptr(),
        version: c"1".as_ptr(),
        aliases: null(),
        variables: null(),
        num_variables: 0,
        libraries: null(),
        num_libraries: 0,
        device_lost: null(),
        collective_engine: null(),
        triton_backend: null(),
        flaggems_vendor: null(),
        torch_device_type: null(),
        serving: FLAGOS_VENDOR_SERVED_BY_LIBRARY,
        dlpack_device_type: 1,
        reserved: [null(); 16],
    }
}

/// The table, without a flaw of its own: its instances have those of `FLAW` when they are opened.
pub fn table(host_computes: bool) -> FlagosVendor {
    FlagosVendor {
        struct_size: size_of::<FlagosVendor>(),
        major: FLAGOS_VENDOR_MAJOR,
        minor: FLAGOS_VENDOR_MINOR,
        capabilities: if host_computes {
            FLAGOS_VENDOR_HOST_COMPUTES
        } else {
            0
        },
        description: Box::leak(Box::new(description())),
        last_error: Some(last_error),
        probe: Some(probe),
        open: Some(open_instance),
        close: Some(close),
        after_fork_in_child: Some(after_fork_in_child),
        in_stream_work: Some(in_stream_work),
        device_count: Some(device_count),
        device_properties: Some(device_properties),
        device_memory: Some(device_memory),
        device_sync: Some(device_sync),
        device_quiesce: Some(device_quiesce),
        memory_alloc: Some(memory_alloc),
        memory_free: Some(memory_free),
        pinned_alloc: Some(pinned_alloc),
        pinned_free: Some(pinned_free),
        stream_default: Some(stream_default),
        stream_create: Some(stream_create),
        stream_destroy: Some(stream_destroy),
        stream_query: Some(stream_query),
        stream_is_idle: Some(stream_is_idle),
        stream_sync: Some(stream_sync),
        stream_copy: Some(stream_copy),
        stream_host_function: Some(stream_host_function),
        event_create: Some(event_create),
        event_destroy: Some(event_destroy),
        event_record: Some(event_record),
        event_wait: Some(event_wait),
        event_query: Some(event_query),
        event_sync: Some(event_sync),
        event_elapsed: Some(event_elapsed),
        stream_native_handle: None,
        stream_external: None,
        reserved: [null(); 32],
    }
}

/// The status of an outcome, whose value goes to `out`.
unsafe fn give<T>(out: *mut T, outcome: Result<T>) -> i32 {
    match outcome {
        Ok(value) => {
            // SAFETY: outputs are valid.
            unsafe { out.write(value) };
            FLAGOS_VENDOR_OK
        }
        Err(error) => {
            let text = CString::new(error.to_string()).expect("a text without NUL");
            LAST_ERROR.set(text);
            error.kind().status()
        }
    }
}

fn status(outcome: Result<()>) -> i32 {
    let mut nothing = ();
    // SAFETY: a valid output.
    unsafe { give(&mut nothing, outcome) }
}

unsafe extern "C" fn last_error() -> *const c_char {
    LAST_ERROR.with_borrow(|text| text.as_ptr())
}

unsafe extern "C" fn probe(count: *mut i32) -> i32 {
    // SAFETY: a valid output.
    unsafe { give(count, Ok(1)) }
}

// The handles are boxes, which the functions below make and take back.

unsafe fn vendor<'a>(instance: *mut FlagosVendorInstance) -> &'a Broken {
    // SAFETY: made by `open_instance`.
    unsafe { &*instance.cast() }
}

unsafe fn stream<'a>(handle: *mut FlagosVendorStream) -> &'a dyn Stream {
    // SAFETY: made by `give_stream`.
    unsafe { &**handle.cast::<Arc<dyn Stream>>() }
}

unsafe fn event<'a>(handle: *mut FlagosVendorEvent) -> &'a dyn Event {
    // SAFETY: made by `event_create`.
    unsafe { &**handle.cast::<Arc<dyn Event>>() }
}

unsafe extern "C" fn open_instance(
    options: *const FlagosVendorOptions,
    out: *mut *mut FlagosVendorInstance,
) -> i32 {
    let flaw = FLAW.get();
    // SAFETY: valid options.
    let count = unsafe { (*options).pending }
        .cast::<AtomicU64>()
        .cast_const();
    let pending = if count.is_null() || flaw == Flaw::PendingIsZero {
        Arc::default()
    } else {
        // SAFETY: the tests pass the count of an `Arc`, which this adds an owner to.
        unsafe {
            Arc::increment_strong_count(count);
            Arc::from_raw(count)
        }
    };
    let instance = Box::new(Broken::new(flaw, pending));
    // SAFETY: a valid output.
    unsafe { give(out, Ok(Box::into_raw(instance).cast())) }
}

unsafe extern "C" fn close(instance: *mut FlagosVendorInstance) {
    // SAFETY: made by `open_instance`.
    drop(unsafe { Box::from_raw(instance.cast::<Broken>()) });
}

unsafe extern "C" fn after_fork_in_child(instance: *mut FlagosVendorInstance) {
    // SAFETY: a live instance.
    unsafe { vendor(instance) }.after_fork_in_child();
}

unsafe extern "C" fn in_stream_work(instance: *mut FlagosVendorInstance) -> i32 {
    // SAFETY: a live instance.
    unsafe { vendor(instance) }.in_stream_work().into()
}

unsafe extern "C" fn device_count(instance: *mut FlagosVendorInstance, out: *mut i32) -> i32 {
    // SAFETY: a live instance and a valid output, as in all functions below.
    unsafe { give(out, Ok(vendor(instance).device_count() as i32)) }
}

unsafe extern "C" fn device_properties(
    instance: *mut FlagosVendorInstance,
    device: i32,
    out: *mut FlagosVendorProperties,
) -> i32 {
    // SAFETY: as above; the table is used by a host of its own version.
    unsafe {
        let told = vendor(instance).properties(device as usize).map(|told| {
            for (to, byte) in (&mut (*out).name)[..255].iter_mut().zip(told.name.bytes()) {
                *to = byte as c_char;
            }
            (*out).total_memory = told.total_memory;
            (*out).multi_processor_count = told.multi_processor_count;
            (*out).major = told.major;
            (*out).minor = told.minor;
        });
        status(told)
    }
}

unsafe extern "C" fn device_memory(
    instance: *mut FlagosVendorInstance,
    device: i32,
    out: *mut FlagosVendorMemory,
) -> i32 {
    // SAFETY: as above.
    unsafe {
        let told = vendor(instance).memory(device as usize).map(|told| {
            (*out).free = told.free;
            (*out).total = told.total;
        });
        status(told)
    }
}

unsafe extern "C" fn device_sync(instance: *mut FlagosVendorInstance, device: i32) -> i32 {
    // SAFETY: as above.
    status(unsafe { vendor(instance) }.device_sync(device as usize))
}

unsafe extern "C" fn device_quiesce(instance: *mut FlagosVendorInstance, device: i32) -> i32 {
    // SAFETY: as above.
    status(unsafe { vendor(instance) }.quiesce(device as usize))
}

unsafe extern "C" fn memory_alloc(
    instance: *mut FlagosVendorInstance,
    device: i32,
    nbytes: usize,
    out: *mut *mut c_void,
) -> i32 {
    // SAFETY: as above.
    unsafe {
        let address = vendor(instance).alloc(device as usize, nbytes);
        give(out, address.map(|address| address.as_ptr().cast()))
    }
}

unsafe extern "C" fn memory_free(
    instance: *mut FlagosVendorInstance,
    device: i32,
    address: *mut c_void,
    nbytes: usize,
) -> i32 {
    let address = NonNull::new(address.cast()).expect("not NULL");
    // SAFETY: as above.
    unsafe { vendor(instance).free(device as usize, address, nbytes) };
    FLAGOS_VENDOR_OK
}

unsafe extern "C" fn pinned_alloc(
    instance: *mut FlagosVendorInstance,
    nbytes: usize,
    out: *mut *mut c_void,
) -> i32 {
    // SAFETY: as above.
    unsafe {
        let address = vendor(instance).pinned_alloc(nbytes);
        give(out, address.map(|address| address.as_ptr().cast()))
    }
}

unsafe extern "C" fn pinned_free(
    instance: *mut FlagosVendorInstance,
    address: *mut c_void,
    nbytes: usize,
) -> i32 {
    let address = NonNull::new(address.cast()).expect("not NULL");
    // SAFETY: as above.
    unsafe { vendor(instance).pinned_free(address, nbytes) };
    FLAGOS_VENDOR_OK
}

unsafe fn give_stream(out: *mut *mut FlagosVendorStream, stream: Result<Arc<dyn Stream>>) -> i32 {
    // SAFETY: as above.
    unsafe {
        give(
            out,
            stream.map(|stream| Box::into_raw(Box::new(stream)).cast()),
        )
    }
}

/// The handle is another one at each call, of the same stream, and is not freed.
unsafe extern "C" fn stream_default(
    instance: *mut FlagosVendorInstance,
    device: i32,
    out: *mut *mut FlagosVendorStream,
) -> i32 {
    // SAFETY: as above.
    unsafe { give_stream(out, vendor(instance).default_stream(device as usize)) }
}

unsafe extern "C" fn stream_create(
    instance: *mut FlagosVendorInstance,
    device: i32,
    priority: i32,
    out: *mut *mut FlagosVendorStream,
) -> i32 {
    // SAFETY: as above.
    unsafe { give_stream(out, vendor(instance).stream(device as usize, priority)) }
}

unsafe extern "C" fn stream_destroy(handle: *mut FlagosVendorStream) -> i32 {
    // SAFETY: made by `give_stream`.
    drop(unsafe { Box::from_raw(handle.cast::<Arc<dyn Stream>>()) });
    FLAGOS_VENDOR_OK
}

unsafe extern "C" fn stream_query(handle: *mut FlagosVendorStream, out: *mut i32) -> i32 {
    // SAFETY: as above.
    unsafe { give(out, stream(handle).query().map(i32::from)) }
}

unsafe extern "C" fn stream_is_idle(handle: *mut FlagosVendorStream) -> i32 {
    // SAFETY: as above.
    unsafe { stream(handle) }.is_idle().into()
}

unsafe extern "C" fn stream_sync(handle: *mut FlagosVendorStream) -> i32 {
    // SAFETY: as above.
    status(unsafe { stream(handle) }.sync())
}

unsafe extern "C" fn stream_copy(
    handle: *mut FlagosVendorStream,
    to: *mut c_void,
    from: *const c_void,
    nbytes: usize,
    _kind: i32,
) -> i32 {
    // SAFETY: as above.
    status(unsafe { stream(handle).copy(to.cast(), from.cast(), nbytes) })
}

unsafe extern "C" fn stream_host_function(
    handle: *mut FlagosVendorStream,
    function: FlagosVendorHostFunction,
    context: *mut c_void,
) -> i32 {
    // SAFETY: as above.
    status(unsafe { stream(handle).launch(function.expect("not NULL"), context) })
}

unsafe extern "C" fn event_create(
    instance: *mut FlagosVendorInstance,
    device: i32,
    flags: u32,
    out: *mut *mut FlagosVendorEvent,
) -> i32 {
    let timing = flags & FLAGOS_VENDOR_EVENT_TIMING != 0;
    // SAFETY: as above.
    unsafe {
        let event = vendor(instance).event(device as usize, timing);
        give(
            out,
            event.map(|event| Box::into_raw(Box::new(event)).cast()),
        )
    }
}

unsafe extern "C" fn event_destroy(handle: *mut FlagosVendorEvent) -> i32 {
    // SAFETY: made by `event_create`.
    drop(unsafe { Box::from_raw(handle.cast::<Arc<dyn Event>>()) });
    FLAGOS_VENDOR_OK
}

unsafe extern "C" fn event_record(
    handle: *mut FlagosVendorEvent,
    on: *mut FlagosVendorStream,
) -> i32 {
    // SAFETY: as above.
    status(unsafe { stream(on).record(event(handle)) })
}

unsafe extern "C" fn event_wait(
    handle: *mut FlagosVendorEvent,
    on: *mut FlagosVendorStream,
) -> i32 {
    // SAFETY: as above.
    status(unsafe { stream(on).wait(event(handle)) })
}

unsafe extern "C" fn event_query(handle: *mut FlagosVendorEvent, out: *mut i32) -> i32 {
    // SAFETY: as above.
    unsafe { give(out, event(handle).query().map(i32::from)) }
}

unsafe extern "C" fn event_sync(handle: *mut FlagosVendorEvent) -> i32 {
    // SAFETY: as above.
    status(unsafe { event(handle) }.sync())
}

unsafe extern "C" fn event_elapsed(
    start: *mut FlagosVendorEvent,
    end: *mut FlagosVendorEvent,
    out: *mut f64,
) -> i32 {
    // SAFETY: as above.
    unsafe { give(out, event(start).elapsed_ms(event(end))) }
}
