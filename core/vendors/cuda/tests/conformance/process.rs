//! Tests of the state of a process: each runs the test of the same name below in a new process.

use crate::TESTED;

fn alone(name: &str) {
    TESTED.alone(name);
}

#[test]
fn a_lost_context_is_said_to_be_lost() {
    alone("a_lost_context_is_said_to_be_lost");
}

#[test]
fn a_forked_child_is_told() {
    alone("a_forked_child_is_told");
}

#[test]
fn counting_devices_leaves_forks_free() {
    alone("counting_devices_leaves_forks_free");
}

#[test]
fn the_c_table_runs_on_cuda() {
    alone("the_c_table_runs_on_cuda");
}

#[test]
fn the_c_table_launches() {
    alone("the_c_table_launches");
}

mod inside {
    use std::ptr::null_mut;
    use std::sync::atomic::{AtomicU64, Ordering};

    use flagos_core::ErrorKind;
    use flagos_core::abi;

    use crate::driver::driver;
    use crate::support::in_child;
    use crate::{TESTED, open, pattern, same};
    use flagos_vendor_kit::conformance::Pinned;

    #[test]
    #[ignore = "run in a process of its own"]
    fn a_lost_context_is_said_to_be_lost() {
        let cuda = open().expect("a device");
        let stream = cuda.vendor.stream(0, 0).expect("a stream");
        let event = cuda.vendor.event(0, false).expect("an event");
        stream.sync().expect("nothing is queued");
        driver().launch_trap(stream.native_handle().expect("a CUstream"));
        for error in [
            stream.sync().expect_err("the kernel failed"),
            stream.sync().expect_err("and stays failed"),
            cuda.vendor.device_sync(0).expect_err("for the device too"),
            stream.record(&*event).expect_err("and for what is new"),
        ] {
            assert_eq!(error.kind(), ErrorKind::Device, "{error}");
            assert!(error.to_string().contains("restart the process"), "{error}");
        }
        assert!(stream.is_idle(), "nothing runs any more");
    }

    #[test]
    #[ignore = "run in a process of its own"]
    fn a_forked_child_is_told() {
        let runtime = abi::initialize().expect("it initialises");
        let vendor = runtime.vendor();
        let stream = vendor.stream(0, 0).expect("a stream");
        let event = vendor.event(0, false).expect("an event");
        stream.record(&*event).expect("recorded");
        stream.sync().expect("it ran");
        let launch = crate::launch::ready(vendor);
        let told = in_child(|| {
            let errors = [
                vendor.alloc(0, 1).err(),
                vendor.event(0, false).err(),
                event.query().err(),
                event.sync().err(),
                stream.sync().err(),
                stream.record(&*event).err(),
                vendor.pinned_alloc(1).err(),
                vendor.quiesce(0).err(),
                TESTED.open_again().err(),
                abi::initialize().err(),
                // SAFETY: refused before anything is done with the pointers.
                unsafe { launch.run(0, &[0, 0]) }.err(),
            ];
            let told = errors.iter().all(|error| {
                let error = error.as_ref();
                error.is_some_and(|error| {
                    error.kind() == ErrorKind::Forked && error.to_string().contains("spawn")
                })
            });
            if !told {
                crate::say(&format!("{errors:?}"));
            }
            drop((event, stream));
            told
        });
        assert!(told, "the child was not told");
        vendor.device_sync(0).expect("the parent goes on");
    }

    #[test]
    #[ignore = "run in a process of its own"]
    fn counting_devices_leaves_forks_free() {
        let table = abi::api();
        assert!((table.device_count)() > 0);
        let worked = in_child(|| {
            let vendor = TESTED.open_again().expect("it opens");
            let pinned = pattern(&*vendor, 4096, 1);
            drop(pinned);
            vendor.device_sync(0).is_ok()
        });
        assert!(worked, "CUDA did not work in the child");
    }

    #[test]
    #[ignore = "run in a process of its own"]
    fn the_c_table_launches() {
        let mut launch = null_mut();
        // SAFETY: refused before the description is read.
        let status = unsafe { (abi::api().launch_create)(&crate::launch::DESC, &mut launch) };
        assert_eq!(status, abi::FLAGOS_NOT_INITIALIZED);
        let vendor = abi::initialize().expect("it initialises").vendor();
        crate::launch::by_the_c_table(vendor);
    }

    #[test]
    #[ignore = "run in a process of its own"]
    fn the_c_table_runs_on_cuda() {
        const NBYTES: usize = 1 << 20;
        let vendor = abi::initialize().expect("it initialises").vendor();
        assert_eq!(vendor.name(), "cuda");
        let table = abi::api();
        let (from, to): (Pinned<'_>, Pinned<'_>) =
            (pattern(vendor, NBYTES, 1), pattern(vendor, NBYTES, 2));
        let (mut data, mut block, mut stream) = (null_mut(), null_mut(), 0);
        // SAFETY: valid outputs, and ranges that live until the stream is synchronised.
        unsafe {
            assert_eq!((table.stream_create)(0, -1, &mut stream), 0);
            let status = (table.mem_alloc)(0, stream, NBYTES, &mut data, &mut block);
            assert_eq!(status, 0);
            let there = from.address().cast();
            assert_eq!((table.copy_async)(0, stream, data, there, NBYTES), 0);
            let back = to.address().cast();
            assert_eq!((table.copy_async)(0, stream, back, data, NBYTES), 0);
            let pending = AtomicU64::from_ptr((table.pending)().cast_mut());
            assert_eq!(
                pending.load(Ordering::Acquire),
                0,
                "nothing for the host to wait for"
            );
        }
        assert_eq!((table.stream_sync)(0, stream), 0);
        assert!(same(&from, &to, NBYTES));
        assert_eq!((table.mem_device_of)(data), 0);
        (table.mem_free)(block);
        assert_eq!((table.mem_empty_cache)(-1), 0);
    }
}
