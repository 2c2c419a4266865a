//! Memory that runs out, and is given back.

use std::sync::Arc;

use flagos_core::ErrorKind;
use flagos_core::runtime::{Runtime, Vendor};

use crate::{Memory, open, pattern, same};

fn round_trip(vendor: &dyn Vendor) {
    const NBYTES: usize = 1 << 20;
    let (from, to) = (pattern(vendor, NBYTES, 5), pattern(vendor, NBYTES, 6));
    let memory = Memory::new(vendor, 0, NBYTES);
    let stream = vendor.default_stream(0).expect("a stream");
    crate::copy(&*stream, memory.address(), from.address(), NBYTES);
    crate::copy(&*stream, to.address(), memory.address(), NBYTES);
    stream.sync().expect("both ran");
    assert!(same(&from, &to, NBYTES));
}

#[test]
fn a_full_device_is_out_of_memory_and_recovers() {
    let Some(cuda) = open() else { return };
    let vendor = &*cuda.vendor;
    round_trip(vendor);
    let total = vendor.memory(0).expect("it is counted").total as usize;
    let error = vendor.alloc(0, total).expect_err("some of it is in use");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    let text = error.to_string();
    for says in crate::OUT_OF_MEMORY.into_iter().chain(["device: 0"]) {
        assert!(text.contains(says), "`{says}` is missing in {text}");
    }
    vendor
        .device_sync(0)
        .expect("the failure left nothing behind");
    round_trip(vendor);
}

#[test]
fn the_allocator_gives_back_what_it_cached() {
    let Some(cuda) = open() else { return };
    let runtime = Runtime::new(Arc::clone(&cuda.vendor)).expect("a runtime");
    let memory = runtime.memory();
    let free = memory.info(0).expect("it is counted").free as usize;
    let part = |tenths: usize| (free / 10 * tenths) & !511;
    let first = memory
        .alloc(0, 0, part(6))
        .expect("it fits")
        .expect("not empty");
    memory.free(first.block).expect("allocated");
    // The second allocation does not fit beside the first, which is free but cached.
    let second = memory
        .alloc(0, 0, part(7))
        .expect("the cache gives way")
        .expect("not empty");
    assert_eq!(memory.device_of(second.data.as_ptr()), Some(0));
    let error = memory
        .alloc(0, 0, part(6))
        .expect_err("nothing is cached any more");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    memory.free(second.block).expect("allocated");
    memory.empty_cache(0).expect("the device can be waited for");
    round_trip(&*cuda.vendor);
}
