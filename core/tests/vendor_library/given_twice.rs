//! Libraries that give what they must not, and say that all is well: each has an error that names the library, the
//! function and what it gave.

use std::cell::Cell;
use std::ffi::{c_char, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use flagos_core::runtime::{Runtime, Vendor};
use flagos_core::vendors::library::{self, *};
use flagos_core::{Error, ErrorKind};

use crate::chip::table as chip;
use crate::forms::linked_kernels;

thread_local! {
    static TABLE: Cell<*const FlagosVendor> = const { Cell::new(null()) };
    /// What the functions below gave first.
    static FIRST: Cell<*mut c_void> = const { Cell::new(null_mut()) };
    /// The distance of what they give then.
    static DISTANCE: Cell<usize> = const { Cell::new(0) };
}

unsafe extern "C" fn entry(
    _: *const FlagosVendorHost,
    _: *mut *const c_char,
) -> *const FlagosVendor {
    TABLE.get()
}

/// Opens the example chip with a change to its table.
fn open(change: impl FnOnce(&mut FlagosVendor)) -> Result<Arc<dyn Vendor>, Error> {
    // SAFETY: a table is data; what it points at lives as long as the process.
    let mut table = unsafe { std::ptr::read(chip()) };
    change(&mut table);
    TABLE.set(Box::leak(Box::new(table)));
    FIRST.set(null_mut());
    // SAFETY: but for the change, the chip keeps to the header.
    let library = unsafe { Library::adopt("changed", Some(entry), linked_kernels()) };
    library::open(library.expect("it is taken"), Box::leak(Box::default()))
}

fn opened(change: impl FnOnce(&mut FlagosVendor)) -> Arc<dyn Vendor> {
    open(change).expect("it opens")
}

/// Gives what `make` gives, and from then on the same again, `DISTANCE` bytes further.
unsafe fn again<T>(out: *mut *mut T, make: impl FnOnce() -> i32) -> i32 {
    if FIRST.get().is_null() {
        let status = make();
        // SAFETY: `make` has written it.
        FIRST.set(unsafe { *out }.cast());
        return status;
    }
    let given = FIRST.get().wrapping_byte_add(DISTANCE.get());
    // SAFETY: a valid output.
    unsafe { *out = given.cast() };
    FLAGOS_VENDOR_OK
}

unsafe extern "C" fn memory_again(
    instance: *mut FlagosVendorInstance,
    device: i32,
    nbytes: usize,
    out: *mut *mut c_void,
) -> i32 {
    let alloc = chip().memory_alloc.expect("the chip's table is whole");
    // SAFETY: as the caller says, here and below.
    unsafe { again(out, || alloc(instance, device, nbytes, out)) }
}

unsafe extern "C" fn pinned_again(
    instance: *mut FlagosVendorInstance,
    nbytes: usize,
    out: *mut *mut c_void,
) -> i32 {
    let alloc = chip().pinned_alloc.expect("the chip's table is whole");
    // SAFETY: as above.
    unsafe { again(out, || alloc(instance, nbytes, out)) }
}

unsafe extern "C" fn stream_again(
    instance: *mut FlagosVendorInstance,
    device: i32,
    priority: i32,
    out: *mut *mut FlagosVendorStream,
) -> i32 {
    let create = chip().stream_create.expect("the chip's table is whole");
    // SAFETY: as above.
    unsafe { again(out, || create(instance, device, priority, out)) }
}

unsafe extern "C" fn stream_is_the_default(
    instance: *mut FlagosVendorInstance,
    device: i32,
    _: i32,
    out: *mut *mut FlagosVendorStream,
) -> i32 {
    // SAFETY: as above.
    unsafe { (chip().stream_default.expect("the chip's table is whole"))(instance, device, out) }
}

unsafe extern "C" fn event_again(
    instance: *mut FlagosVendorInstance,
    device: i32,
    flags: u32,
    out: *mut *mut FlagosVendorEvent,
) -> i32 {
    let create = chip().event_create.expect("the chip's table is whole");
    // SAFETY: as above.
    unsafe { again(out, || create(instance, device, flags, out)) }
}

unsafe extern "C" fn three_devices(_: *mut FlagosVendorInstance, count: *mut i32) -> i32 {
    // SAFETY: a valid output.
    unsafe { *count = 3 };
    FLAGOS_VENDOR_OK
}

/// The error is about what `function` gave, and has this text.
#[track_caller]
fn is_defect<T>(outcome: Result<T, Error>, function: &str, text: &str) {
    let error = outcome.err().expect("it is noticed");
    assert_eq!(error.kind(), ErrorKind::Internal);
    let wanted = format!(
        "{function}: the vendor's library gave {text} (vendor: example); this is a defect of the vendor's library: \
         report it to the vendor"
    );
    assert_eq!(error.to_string(), wanted);
}

#[test]
fn memory_that_is_allocated_is_not_taken_again() {
    for (distance, device) in [(0, 0), (512, 0), (0, 1), (4096 - 512, 1)] {
        DISTANCE.set(distance);
        let vendor = opened(|table| table.memory_alloc = Some(memory_again));
        let first = vendor.alloc(0, 4096).expect("memory");
        let given = first.as_ptr().wrapping_add(distance);
        let text = format!(
            "1024 bytes at {given:p}, but it has not got back the 4096 bytes at {first:p} of device 0"
        );
        is_defect(vendor.alloc(device, 1024), "memory_alloc", &text);
        // SAFETY: from `alloc`, unused.
        unsafe { vendor.free(0, first, 4096) };
    }
}

#[test]
fn memory_before_memory_that_is_allocated_does_not_reach_into_it() {
    DISTANCE.set(512_usize.wrapping_neg());
    let vendor = opened(|table| table.memory_alloc = Some(memory_again));
    let first = vendor.alloc(0, 4096).expect("memory");
    let before = vendor
        .alloc(0, 512)
        .expect("it ends where the other begins");
    // SAFETY: the test's own function gave it; it is only forgotten.
    assert_eq!(before.as_ptr(), first.as_ptr().wrapping_sub(512));
    DISTANCE.set(1024_usize.wrapping_neg());
    let text = format!(
        "513 bytes at {:p}, but it has not got back the 512 bytes at {before:p} of device 0",
        first.as_ptr().wrapping_sub(1024)
    );
    is_defect(vendor.alloc(0, 513), "memory_alloc", &text);
}

#[test]
fn memory_that_was_freed_is_taken_again() {
    DISTANCE.set(0);
    let vendor = opened(|table| table.memory_alloc = Some(memory_again));
    let first = vendor.alloc(0, 4096).expect("memory");
    // SAFETY: from `alloc`, unused. The chip's pages of it are never used.
    unsafe { vendor.free(0, first, 4096) };
    assert_eq!(vendor.alloc(0, 4096).expect("it is free"), first);
}

#[test]
fn pinned_memory_that_is_allocated_is_not_taken_again() {
    DISTANCE.set(512);
    let vendor = opened(|table| table.pinned_alloc = Some(pinned_again));
    let first = vendor.pinned_alloc(1024).expect("memory");
    let text = format!(
        "8 bytes at {:p}, but it has not got back the 1024 bytes at {first:p} of pinned memory",
        first.as_ptr().wrapping_add(512)
    );
    is_defect(vendor.pinned_alloc(8), "pinned_alloc", &text);
    // SAFETY: from `pinned_alloc`, unused.
    unsafe { vendor.pinned_free(first, 1024) };

    DISTANCE.set(0);
    let vendor = opened(|table| {
        table.memory_alloc = Some(memory_again);
        table.pinned_alloc = Some(pinned_again);
    });
    let first = vendor.alloc(1, 1024).expect("memory");
    let text = format!(
        "8 bytes at {first:p}, but it has not got back the 1024 bytes at {first:p} of device 1"
    );
    is_defect(vendor.pinned_alloc(8), "pinned_alloc", &text);
    // SAFETY: from `alloc`, unused.
    unsafe { vendor.free(1, first, 1024) };
}

#[test]
fn the_allocator_tells_it_and_what_it_has_stays_good() {
    const LARGE: usize = 64 << 20;
    DISTANCE.set(0);
    let vendor = opened(|table| table.memory_alloc = Some(memory_again));
    let runtime = Runtime::new(vendor).expect("a runtime");
    let first = runtime.memory().alloc(0, 0, LARGE).expect("memory");
    let first = first.expect("not empty").data;
    let error = runtime.memory().alloc(0, 0, LARGE).expect_err("noticed");
    assert_eq!(error.kind(), ErrorKind::Internal);
    let text = format!("at {first:p}, but it has not got back the");
    assert!(error.to_string().contains(&text), "{error}");
    let stream = runtime.streams().get(0, 0).expect("the default stream");
    let (from, mut to) = ([1_u8, 2, 3, 4], [0_u8; 4]);
    // SAFETY: all of it lives until the sync.
    unsafe {
        stream
            .copy(first.as_ptr(), from.as_ptr(), 4)
            .expect("queued");
        stream
            .copy(to.as_mut_ptr(), first.as_ptr(), 4)
            .expect("queued");
    }
    stream.sync().expect("copied");
    assert_eq!(to, from);
}

#[test]
fn a_stream_that_there_is_is_no_new_one() {
    DISTANCE.set(0);
    let vendor = opened(|table| table.stream_create = Some(stream_again));
    let first = vendor.stream(0, 0).expect("a stream");
    let handle = FIRST.get();
    let text = format!("the stream {handle:p}, but it has not got back that stream");
    is_defect(vendor.stream(1, 0), "stream_create", &text);
    first.sync().expect("it is still alive");
    drop(first);
    let same = vendor.stream(0, 0).expect("the first one is gone");
    std::mem::forget(same); // it is none: the chip has destroyed it

    let vendor = opened(|table| table.stream_create = Some(stream_is_the_default));
    let first = vendor.default_stream(0).expect("a stream");
    let handle = first.library_handle().expect("a handle").stream;
    let text = format!("the stream {handle:p}, but it has not got back that stream");
    is_defect(vendor.stream(0, 0), "stream_create", &text);
    drop(first);
    let again = vendor.default_stream(0).expect("the same at each call");
    again.sync().expect("it is still alive");
}

#[test]
fn an_event_that_there_is_is_no_new_one() {
    DISTANCE.set(0);
    let vendor = opened(|table| table.event_create = Some(event_again));
    let first = vendor.event(0, false).expect("an event");
    let text = format!(
        "the event {:p}, but it has not got back that event",
        FIRST.get()
    );
    is_defect(vendor.event(0, true), "event_create", &text);
    first.sync().expect("it is still alive");
    drop(first);
    let same = vendor.event(0, false).expect("the first one is gone");
    std::mem::forget(same); // it is none: the chip has destroyed it
}

#[test]
fn nothing_is_nothing_also_with_success() {
    unsafe extern "C" fn memory(
        _: *mut FlagosVendorInstance,
        _: i32,
        _: usize,
        out: *mut *mut c_void,
    ) -> i32 {
        // SAFETY: a valid output, here and below.
        unsafe { *out = null_mut() };
        FLAGOS_VENDOR_OK
    }
    unsafe extern "C" fn pinned(
        _: *mut FlagosVendorInstance,
        _: usize,
        out: *mut *mut c_void,
    ) -> i32 {
        // SAFETY: as above.
        unsafe { *out = null_mut() };
        FLAGOS_VENDOR_OK
    }
    unsafe extern "C" fn stream(
        _: *mut FlagosVendorInstance,
        _: i32,
        _: i32,
        _: *mut *mut FlagosVendorStream,
    ) -> i32 {
        FLAGOS_VENDOR_OK
    }
    unsafe extern "C" fn event(
        _: *mut FlagosVendorInstance,
        _: i32,
        _: u32,
        _: *mut *mut FlagosVendorEvent,
    ) -> i32 {
        FLAGOS_VENDOR_OK
    }
    let vendor = opened(|table| {
        table.memory_alloc = Some(memory);
        table.pinned_alloc = Some(pinned);
        table.stream_create = Some(stream);
        table.event_create = Some(event);
    });
    is_defect(vendor.alloc(0, 8), "memory_alloc", "the address NULL");
    is_defect(vendor.pinned_alloc(8), "pinned_alloc", "the address NULL");
    is_defect(vendor.stream(0, 0), "stream_create", "no stream");
    is_defect(vendor.event(0, false), "event_create", "no event");
}

#[test]
fn an_instance_has_the_devices_that_were_promised() {
    let outcome = open(|table| table.device_count = Some(three_devices));
    is_defect(outcome, "device_count", "3 devices, but probe gives 2");
}
