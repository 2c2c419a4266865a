//! Tests of the example chip beyond the conformance suite.

use std::ffi::CStr;
use std::mem::{offset_of, size_of};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use flagos_core::ErrorKind;
use flagos_core::runtime::{Runtime, Stream, launch_closure};
use flagos_core::vendors::Serving;
use flagos_core::vendors::library::*;

use crate::forms::{linked, linked_entry, loaded, opened};
use crate::guarded::Guarded;

/// Runs `child` in a forked process. Returns its wait status.
pub fn forked(child: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child only runs `child`, which takes no lock that another thread may hold, and exits.
    unsafe {
        let process = libc::fork();
        assert!(process >= 0);
        if process == 0 {
            libc::_exit(child());
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(process, &mut status, 0), process);
        status
    }
}

/// Copies, and waits for the copy.
fn copy(stream: &dyn Stream, to: *mut u8, from: *const u8, nbytes: usize) {
    // SAFETY: both ranges live beyond the sync.
    unsafe { stream.copy(to, from, nbytes) }.expect("queued");
    stream.sync().expect("copied");
}

#[test]
fn it_is_described() {
    for library in [linked(), loaded()] {
        assert_eq!(
            library.version(),
            (FLAGOS_VENDOR_MAJOR, FLAGOS_VENDOR_MINOR)
        );
        assert_eq!(library.probe().expect("devices"), 2);
        let told = library.description();
        assert_eq!((&*told.name, &*told.version), ("example", "1.0"));
        assert_eq!(told.aliases, ["chip"]);
        assert_eq!(told.serving, Serving::Library);
        assert_eq!(told.dlpack_device_type, 12);
        let variables: Vec<_> = told.variables.iter().map(|v| &*v.name).collect();
        let known = ["DEVICES", "MEMORY", "KERNELS"].map(|name| format!("EXAMPLE_CHIP_{name}"));
        assert_eq!(variables, known);
        assert!(told.libraries.is_empty() && told.collective_engine.is_none());
        assert!(told.means_lost("RuntimeError: CHIP_ILLEGAL_ADDRESS: a copy"));
        assert!(!told.means_lost("out of memory"));
        let vendor = opened(library);
        assert_eq!((vendor.name(), vendor.device_count()), ("example", 2));
        let device = vendor.properties(1).expect("it is described");
        assert_eq!(device.name, "Example Chip 1");
        assert!(!vendor.host_computes());
    }
}

#[test]
fn the_host_cannot_access_device_memory() {
    let vendor = opened(loaded());
    let address = vendor.alloc(0, 4096).expect("memory");
    let status = forked(|| {
        // SAFETY: deliberately violated: the process is to end here.
        unsafe { address.as_ptr().read_volatile() }.into()
    });
    assert!(libc::WIFSIGNALED(status), "{status:#x}");
    assert_eq!(libc::WTERMSIG(status), libc::SIGSEGV);
    // SAFETY: from `alloc`, unused.
    unsafe { vendor.free(0, address, 4096) };
}

/// The chip compares the kind given by the host with the addresses.
#[test]
fn copies_of_every_kind_are_told() {
    const NBYTES: usize = 10_000;
    let vendor = opened(loaded());
    let streams = [0, 1].map(|device| vendor.stream(device, 0).expect("a stream"));
    let memory = [0, 1].map(|device| vendor.alloc(device, 2 * NBYTES).expect("memory"));
    let pinned = vendor.pinned_alloc(NBYTES).expect("pinned memory");
    let from: Vec<u8> = (0..NBYTES).map(|i| (i % 251) as u8).collect();
    let mut to = vec![0_u8; NBYTES];
    // The inside of an allocation counts as well as its beginning.
    let inside = [0, 1].map(|device: usize| memory[device].as_ptr().wrapping_add(NBYTES));
    for stream in &streams {
        let stream = &**stream;
        copy(stream, pinned.as_ptr(), from.as_ptr(), NBYTES);
        copy(stream, inside[0], pinned.as_ptr(), NBYTES);
        copy(stream, memory[0].as_ptr(), inside[0], NBYTES);
        copy(stream, inside[1], memory[0].as_ptr(), NBYTES);
        copy(stream, to.as_mut_ptr(), inside[1], NBYTES);
        assert_eq!(to, from);
        to.fill(0);
    }
    // SAFETY: allocated above, and everything is synchronised.
    unsafe {
        vendor.free(0, memory[0], 2 * NBYTES);
        vendor.free(1, memory[1], 2 * NBYTES);
        vendor.pinned_free(pinned, NBYTES);
    }
}

#[test]
fn a_lost_device_says_so_and_the_other_works() {
    let library = loaded();
    let vendor = opened(library);
    let streams = [0, 1].map(|device| vendor.stream(device, 0).expect("a stream"));
    let address = vendor.alloc(0, 4096).expect("memory");
    let event = vendor.event(0, false).expect("an event");
    let bytes = [7_u8; 8192];
    // SAFETY: the bytes live on, and the chip writes nothing of a copy that is too long.
    unsafe { streams[0].copy(address.as_ptr(), bytes.as_ptr(), 8192) }.expect("queued");
    let ran = Arc::new(AtomicBool::new(false));
    let inside = Arc::clone(&ran);
    let work = move || inside.store(true, Ordering::Release);
    launch_closure(&*streams[0], work).expect("queued");
    streams[0].record(&*event).expect("queued");
    for error in [
        streams[0].sync().err(),
        streams[0].query().err(),
        event.sync().err(),
        vendor.device_sync(0).err(),
        vendor.alloc(0, 1).err(),
    ] {
        let error = error.expect("the device is lost");
        assert_eq!(error.kind(), ErrorKind::Device);
        assert!(
            error.to_string().ends_with("restart the process"),
            "{error}"
        );
        assert!(library.description().means_lost(&error.to_string()));
    }
    vendor.quiesce(0).expect("nothing runs any more");
    assert!(ran.load(Ordering::Acquire), "the function is called");
    streams[1].sync().expect("the other device works");
    drop(launch_closure(&*streams[1], || {}));
    vendor.device_sync(1).expect("the other device works");
    let other = opened(library);
    other.device_sync(0).expect("another instance works");
}

#[test]
fn events_stay_with_their_instance_and_device() {
    let (a, b) = (opened(loaded()), opened(loaded()));
    let stream = a.stream(0, 0).expect("a stream");
    let (foreign, other) = (b.event(0, true), a.event(1, true));
    let (foreign, other) = (foreign.expect("an event"), other.expect("an event"));
    for error in [
        stream.record(&*foreign).err(),
        stream.wait(&*foreign).err(),
        stream.record(&*other).err(),
        other.elapsed_ms(&*foreign).err(),
    ] {
        let kind = error.map(|error| error.kind());
        assert_eq!(kind, Some(ErrorKind::InvalidArgument));
    }
    let there = a.stream(1, 0).expect("a stream");
    there.record(&*other).expect("recorded");
    stream
        .wait(&*other)
        .expect("events of other devices can be waited for");
    stream.sync().expect("waited");
}

#[test]
fn what_the_chip_lacks_is_unsupported() {
    let vendor = opened(loaded());
    let stream = vendor.stream(0, 0).expect("a stream");
    assert_eq!(stream.native_handle(), None);
    // SAFETY: NULL is the default stream.
    let outcome = unsafe { vendor.external_stream(0, null_mut()) };
    let error = outcome.err().expect("unsupported");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("stream_external"), "{error}");
}

#[test]
fn waiting_within_work_is_refused() {
    let vendor = opened(loaded());
    let stream = vendor.stream(0, 0).expect("a stream");
    let (tell, told) = mpsc::channel();
    let (inner, inside) = (Arc::clone(&vendor), Arc::clone(&stream));
    let work = move || {
        let outcomes = [inside.sync(), inner.device_sync(0), inner.quiesce(0)];
        tell.send(outcomes.map(|outcome| outcome.map_err(|error| error.kind())))
            .expect("the test listens");
    };
    launch_closure(&*stream, work).expect("queued");
    let refused = Err(ErrorKind::Unsupported);
    assert_eq!(told.recv().expect("it ran"), [refused; 3]);
}

#[test]
fn the_last_owner_may_be_work_on_a_stream() {
    let vendor = opened(loaded());
    let stream = vendor.stream(0, 0).expect("a stream");
    let (open, opened) = mpsc::channel::<()>();
    let (tell, told) = mpsc::channel();
    let owner = (Arc::clone(&vendor), Arc::clone(&stream));
    let work = move || {
        opened.recv().expect("the test opens");
        drop(owner);
        tell.send(()).expect("the test listens");
    };
    launch_closure(&*stream, work).expect("queued");
    drop((vendor, stream));
    open.send(()).expect("the work waits");
    told.recv().expect("the rest of the work runs");
}

#[test]
fn a_forked_child_is_refused() {
    let vendor = opened(loaded());
    let stream = vendor.stream(0, 0).expect("a stream");
    let gate = mpsc::channel::<()>();
    let wait = move || gate.1.recv().unwrap_or_default();
    launch_closure(&*stream, wait).expect("queued");
    let status = forked(|| {
        vendor.after_fork_in_child();
        let is = |kind: Option<ErrorKind>| kind == Some(ErrorKind::Forked);
        let refused = is(vendor.alloc(0, 1).err().map(|error| error.kind()))
            && is(stream.sync().err().map(|error| error.kind()))
            && is(vendor.device_sync(0).err().map(|error| error.kind()))
            && stream.is_idle()
            && !vendor.in_stream_work();
        // None of these calls waits for a thread that only the parent has.
        drop(stream);
        drop(vendor);
        i32::from(!refused)
    });
    drop(gate.0);
    assert!(libc::WIFEXITED(status), "{status:#x}");
    assert_eq!(libc::WEXITSTATUS(status), 0);
}

/// Each thread sends a number through both devices again and again, and adds 1 on the host; streams take turns by events.
#[test]
fn eight_threads_share_it() {
    const ROUNDS: u64 = 500;
    let vendor = opened(loaded());
    let before = [0, 1].map(|device| vendor.memory(device).expect("memory").free);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let vendor = &vendor;
            scope.spawn(move || {
                let streams = [0, 1].map(|device| vendor.stream(device, 0).expect("a stream"));
                let pinned = vendor.pinned_alloc(8).expect("pinned memory");
                let number = pinned.cast::<u64>().as_ptr();
                // SAFETY: just allocated.
                unsafe { number.write(thread) };
                for _ in 0..ROUNDS {
                    let memory = [0, 1].map(|device| vendor.alloc(device, 8).expect("memory"));
                    let [a, b] = memory.map(|address| address.as_ptr());
                    let event = vendor.event(0, false).expect("an event");
                    // SAFETY: everything lives until the sync below.
                    unsafe {
                        streams[0].copy(a, number.cast(), 8).expect("queued");
                        streams[0].copy(b, a, 8).expect("queued");
                        streams[0].record(&*event).expect("recorded");
                        streams[1].wait(&*event).expect("queued");
                        streams[1].copy(number.cast(), b, 8).expect("queued");
                    }
                    let address = number as usize;
                    let add = move || {
                        // SAFETY: only this stream uses the number now.
                        unsafe { *(address as *mut u64) += 1 };
                    };
                    launch_closure(&*streams[1], add).expect("queued");
                    streams[1].sync().expect("synchronised");
                    // SAFETY: allocated above; the first stream ended before the second.
                    unsafe {
                        vendor.free(0, memory[0], 8);
                        vendor.free(1, memory[1], 8);
                    }
                }
                // SAFETY: allocated above, and nothing is queued.
                unsafe {
                    assert_eq!(number.read(), thread + ROUNDS);
                    vendor.pinned_free(pinned, 8);
                }
            });
        }
    });
    let after = [0, 1].map(|device| vendor.memory(device).expect("memory").free);
    assert_eq!(after, before);
}

#[test]
fn a_runtime_runs_over_it() {
    let runtime = Runtime::new(opened(loaded())).expect("a runtime");
    let (from, mut to) = ([1_u8, 2, 3, 4], [0_u8; 4]);
    let block = runtime.memory().alloc(1, 0, 4).expect("memory");
    let stream = runtime.streams().get(1, 0).expect("the default stream");
    let address = block.expect("not empty").data.as_ptr();
    copy(stream, address, from.as_ptr(), 4);
    copy(stream, to.as_mut_ptr(), address, 4);
    assert_eq!(to, from);
}

/// The chip's own table, as a host gets it.
pub fn table() -> &'static FlagosVendor {
    let host = FlagosVendorHost {
        struct_size: size_of::<FlagosVendorHost>(),
        oldest_major: FLAGOS_VENDOR_MAJOR,
        newest_major: FLAGOS_VENDOR_MAJOR,
        newest_minor: FLAGOS_VENDOR_MINOR,
        reserved_word: 0,
        log: None,
        reserved: [null(); 8],
    };
    // SAFETY: a valid struct; the table is static.
    unsafe { (linked_entry().expect("it is linked"))(&host, &mut null()).as_ref() }
        .expect("it takes this version")
}

#[test]
fn the_chip_declines_other_versions() {
    let entry = linked_entry().expect("it is linked");
    for (oldest_major, newest_major, taken) in
        [(1, 1, true), (1, 9, true), (2, 9, false), (0, 0, false)]
    {
        for nbytes in 0..=size_of::<FlagosVendorHost>() {
            let host = FlagosVendorHost {
                struct_size: 0,
                oldest_major,
                newest_major,
                newest_minor: 7,
                reserved_word: 0,
                log: None,
                reserved: [null(); 8],
            };
            let host = Guarded::new(&host, nbytes);
            let mut reason = null();
            // SAFETY: as many bytes as the struct says, and at least its size.
            let table = unsafe { entry(host.address(), &mut reason) };
            let told = nbytes >= offset_of!(FlagosVendorHost, newest_major) + 4;
            assert_eq!(!table.is_null(), taken && told, "{nbytes}");
            if table.is_null() {
                // SAFETY: a static text.
                let reason = unsafe { CStr::from_ptr(reason) };
                assert!(reason.to_string_lossy().contains("version"));
            }
        }
    }
}

#[test]
fn the_chip_keeps_to_the_sizes_of_the_host() {
    let table = table();
    let options = FlagosVendorOptions {
        struct_size: 0,
        pending: null_mut(),
        reserved: [null(); 8],
    };
    let properties = FlagosVendorProperties {
        struct_size: 0,
        name: [0; 256],
        total_memory: 0,
        multi_processor_count: 0,
        major: 0,
        minor: 0,
        reserved_word: 0,
    };
    let memory = FlagosVendorMemory {
        struct_size: 0,
        free: 0,
        total: 0,
    };
    let mut instance = null_mut();
    let options = Guarded::new(&options, size_of::<usize>());
    // SAFETY: as many bytes as each struct says; a write beyond them faults.
    unsafe {
        let open = table.open.expect("required");
        assert_eq!(open(options.address(), &mut instance), FLAGOS_VENDOR_OK);
        for nbytes in (8..=size_of::<FlagosVendorProperties>()).step_by(8) {
            let given = Guarded::new(&properties, nbytes);
            let tell = table.device_properties.expect("required");
            assert_eq!(tell(instance, 0, given.address()), FLAGOS_VENDOR_OK);
            assert_eq!(given.address().cast::<usize>().read(), nbytes);
        }
        for nbytes in [8, 16, 24] {
            let given = Guarded::new(&memory, nbytes);
            let tell = table.device_memory.expect("required");
            assert_eq!(tell(instance, 0, given.address()), FLAGOS_VENDOR_OK);
            assert_eq!(given.address().cast::<usize>().read(), nbytes);
        }
        (table.close.expect("required"))(instance);
    }
}
