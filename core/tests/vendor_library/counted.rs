//! A library whose handles are counted: a table that calls another one.

use std::ffi::{c_char, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

use flagos_core::vendors::library::*;

use crate::chip::table as chip;
use crate::forms::linked_kernels;

/// How many of a kind of handles were made, and how many of them are alive.
#[derive(Debug)]
pub struct Count {
    pub kind: &'static str,
    made: AtomicI64,
    alive: AtomicI64,
}

impl Count {
    const fn of(kind: &'static str) -> Self {
        Self {
            kind,
            made: AtomicI64::new(0),
            alive: AtomicI64::new(0),
        }
    }

    pub fn made(&self) -> i64 {
        self.made.load(Ordering::Relaxed)
    }

    pub fn alive(&self) -> i64 {
        self.alive.load(Ordering::Relaxed)
    }

    fn note_made(&self, status: i32) -> i32 {
        if status == FLAGOS_VENDOR_OK {
            self.made.fetch_add(1, Ordering::Relaxed);
            self.alive.fetch_add(1, Ordering::Relaxed);
        }
        status
    }

    fn note_gone(&self, status: i32) -> i32 {
        assert_eq!(
            status, FLAGOS_VENDOR_OK,
            "a {} is not taken back",
            self.kind
        );
        self.alive.fetch_sub(1, Ordering::Relaxed);
        status
    }
}

/// Every kind of handles.
pub static COUNTS: [Count; 5] = [
    Count::of("instance"),
    Count::of("stream"),
    Count::of("event"),
    Count::of("allocation"),
    Count::of("pinned allocation"),
];
const INSTANCE: usize = 0;
const STREAM: usize = 1;
const EVENT: usize = 2;
const ALLOCATION: usize = 3;
const PINNED: usize = 4;

/// Defines a function of the table that calls the chip's and counts its outcome.
macro_rules! counting {
    ($($name:ident, $kind:expr, $note:ident, ($($argument:ident: $type:ty),*);)*) => {
        $(unsafe extern "C" fn $name($($argument: $type),*) -> i32 {
            let call = chip().$name.expect("the chip's table is whole");
            // SAFETY: as the caller says.
            COUNTS[$kind].$note(unsafe { call($($argument),*) })
        })*
    };
}

counting! {
    open, INSTANCE, note_made, (options: *const FlagosVendorOptions, out: *mut *mut FlagosVendorInstance);
    stream_create, STREAM, note_made,
        (instance: *mut FlagosVendorInstance, device: i32, priority: i32, out: *mut *mut FlagosVendorStream);
    stream_destroy, STREAM, note_gone, (stream: *mut FlagosVendorStream);
    event_create, EVENT, note_made,
        (instance: *mut FlagosVendorInstance, device: i32, flags: u32, out: *mut *mut FlagosVendorEvent);
    event_destroy, EVENT, note_gone, (event: *mut FlagosVendorEvent);
    memory_alloc, ALLOCATION, note_made,
        (instance: *mut FlagosVendorInstance, device: i32, nbytes: usize, out: *mut *mut c_void);
    memory_free, ALLOCATION, note_gone,
        (instance: *mut FlagosVendorInstance, device: i32, address: *mut c_void, nbytes: usize);
    pinned_alloc, PINNED, note_made,
        (instance: *mut FlagosVendorInstance, nbytes: usize, out: *mut *mut c_void);
    pinned_free, PINNED, note_gone,
        (instance: *mut FlagosVendorInstance, address: *mut c_void, nbytes: usize);
}

unsafe extern "C" fn close(instance: *mut FlagosVendorInstance) {
    // SAFETY: as the caller says.
    unsafe { (chip().close.expect("the chip's table is whole"))(instance) };
    COUNTS[INSTANCE].note_gone(FLAGOS_VENDOR_OK);
}

/// The table, shared by all threads.
struct Shared(FlagosVendor);

// SAFETY: nobody writes it.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

unsafe extern "C" fn entry(
    _: *const FlagosVendorHost,
    _: *mut *const c_char,
) -> *const FlagosVendor {
    static TABLE: OnceLock<Shared> = OnceLock::new();
    let shared = TABLE.get_or_init(|| {
        // SAFETY: a table is data; what it points at lives as long as the process.
        let mut table = unsafe { std::ptr::read(chip()) };
        table.open = Some(open);
        table.close = Some(close);
        table.stream_create = Some(stream_create);
        table.stream_destroy = Some(stream_destroy);
        table.event_create = Some(event_create);
        table.event_destroy = Some(event_destroy);
        table.memory_alloc = Some(memory_alloc);
        table.memory_free = Some(memory_free);
        table.pinned_alloc = Some(pinned_alloc);
        table.pinned_free = Some(pinned_free);
        Shared(table)
    });
    &shared.0
}

/// The example chip, counted.
pub fn counted() -> &'static Library {
    // SAFETY: the chip keeps to the header, and so does what calls it.
    unsafe { Library::adopt("counted", Some(entry), linked_kernels()) }.expect("it is taken")
}
