//! Tests of the state of a process: each runs the test of the same name below in a new process.

use std::process::Command;

fn alone(name: &str) {
    if !crate::there_is_a_device() {
        return;
    }
    let _turn = crate::turn();
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", &format!("process::inside::{name}")])
        .args(["--ignored", "--nocapture"])
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let passed = output.status.success() && text.contains("1 passed");
    assert!(passed, "{name}:\n{text}\n{errors}");
}

#[test]
fn a_forked_child_is_told() {
    alone("a_forked_child_is_told");
}

#[test]
fn counting_devices_leaves_forks_free() {
    alone("counting_devices_leaves_forks_free");
}

mod inside {
    use flagos_core::vendors::ascend;
    use flagos_core::ErrorKind;

    use crate::{open, settings};

    /// Whether `work` is true in a forked child.
    fn in_child(work: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child runs `work` and nothing else of this program.
        match unsafe { libc::fork() } {
            0 => {
                let good = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
                // SAFETY: ends the child without running what belongs to the parent.
                unsafe { libc::_exit(i32::from(!good.unwrap_or(false))) }
            }
            child => {
                let mut status = -1;
                // SAFETY: a valid output and a child of this process.
                assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
                libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
            }
        }
    }

    #[test]
    #[ignore = "run in a process of its own"]
    fn a_forked_child_is_told() {
        let ascend = open().expect("a device");
        let vendor = &*ascend.vendor;
        let stream = vendor.stream(0, 0).expect("a stream");
        let event = vendor.event(0, false).expect("an event");
        stream.record(&*event).expect("recorded");
        stream.sync().expect("it ran");
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
                vendor.device_sync(0).err(),
                (ascend::ENTRY.open)(&settings(), Box::leak(Box::default())).err(),
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
        assert!((ascend::ENTRY.survey)(&settings()).expect("a device") > 0);
        let worked = in_child(|| {
            let vendor = (ascend::ENTRY.open)(&settings(), Box::leak(Box::default()));
            let vendor = vendor.expect("it opens");
            let stream = vendor.stream(0, 0).expect("a stream");
            stream.sync().is_ok() && vendor.device_sync(0).is_ok()
        });
        assert!(worked, "the runtime did not work in the child");
    }
}
