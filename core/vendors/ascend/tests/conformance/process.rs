//! Tests of the state of a process: each runs the test of the same name below in a new process.

use crate::TESTED;

fn alone(name: &str) {
    TESTED.alone(name);
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
    use flagos_core::ErrorKind;

    use crate::support::in_child;
    use crate::{TESTED, open};

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
            let again = TESTED.open_again().err();
            // As the runtime does.
            vendor.after_fork_in_child();
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
            ];
            let told = errors.iter().all(|error| {
                let error = error.as_ref();
                error.is_some_and(|error| {
                    error.kind() == ErrorKind::Forked && error.to_string().contains("spawn")
                })
            });
            let spawn = |error: flagos_core::Error| error.to_string().contains("spawn");
            if !told {
                crate::say(&format!("{errors:?}"));
            }
            drop((event, stream));
            told && again.is_some_and(spawn)
        });
        assert!(told, "the child was not told");
        vendor.device_sync(0).expect("the parent goes on");
    }

    #[test]
    #[ignore = "run in a process of its own"]
    fn counting_devices_leaves_forks_free() {
        assert!(TESTED.survey().expect("a device") > 0);
        let worked = in_child(|| {
            let vendor = TESTED.open_again().expect("it opens");
            let stream = vendor.stream(0, 0).expect("a stream");
            stream.sync().is_ok() && vendor.device_sync(0).is_ok()
        });
        assert!(worked, "the runtime did not work in the child");
    }
}
