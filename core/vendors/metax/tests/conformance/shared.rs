//! Memory that another process uses.

use std::process::Command;
use std::ptr::NonNull;

use flagos_core::ErrorKind;
use flagos_core::runtime::Vendor;

use crate::{Memory, copy, open, pattern, same};

const NBYTES: usize = 2 << 20;
const KEY: &str = "FLAGOS_TEST_KEY";

fn filled(vendor: &dyn Vendor, seed: usize) -> Memory<'_> {
    let memory = Memory::new(vendor, 0, NBYTES);
    let stream = vendor.default_stream(0).expect("a stream");
    let from = pattern(vendor, NBYTES, seed);
    copy(&*stream, memory.address(), from.address(), NBYTES);
    stream.sync().expect("it ran");
    memory
}

fn holds(vendor: &dyn Vendor, address: *mut u8, seed: usize) -> bool {
    let (expected, found) = (pattern(vendor, NBYTES, seed), pattern(vendor, NBYTES, 99));
    let stream = vendor.default_stream(0).expect("a stream");
    copy(&*stream, found.address(), address, NBYTES);
    stream.sync().expect("it ran");
    same(&expected, &found, NBYTES)
}

#[test]
fn another_process_reads_and_writes() {
    let Some(metax) = open() else { return };
    let vendor = &*metax.vendor;
    let memory = filled(vendor, 3);
    let sharing = vendor.sharing().expect("it shares");
    let inside = NonNull::new(memory.address().wrapping_add(512)).expect("not null");
    let exported = sharing.export(0, inside).expect("a key");
    assert_eq!((exported.offset, exported.nbytes), (512, NBYTES));
    assert!(!exported.key.contains(' '), "{exported:?}");
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "shared::importer", "--ignored", "--nocapture"])
        .env(KEY, &exported.key)
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}\n{errors}"
    );
    assert!(
        holds(vendor, memory.address(), 4),
        "the other process has written"
    );
}

#[test]
#[ignore = "run in a process of its own"]
fn importer() {
    let metax = open().expect("a device");
    let vendor = &*metax.vendor;
    let sharing = vendor.sharing().expect("it shares");
    let key = std::env::var(KEY).expect("a key");
    // SAFETY: the exporting process waits for this one.
    let (one, two) = unsafe {
        let one = sharing.import(0, &key, NBYTES).expect("memory");
        (one, sharing.import(0, &key, NBYTES).expect("memory"))
    };
    assert_eq!(one, two);
    assert!(holds(vendor, one.as_ptr(), 3));
    let error = sharing.export(0, one).expect_err("it is another process's");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    // SAFETY: imported twice.
    unsafe { sharing.close(0, one) };
    let stream = vendor.default_stream(0).expect("a stream");
    let from = pattern(vendor, NBYTES, 4);
    copy(&*stream, two.as_ptr(), from.address(), NBYTES);
    stream.sync().expect("it ran");
    // SAFETY: as above.
    unsafe { sharing.close(0, two) };
}

#[test]
fn what_is_no_key_is_refused() {
    let Some(metax) = open() else { return };
    let vendor = &*metax.vendor;
    let sharing = vendor.sharing().expect("it shares");
    for key in ["", "key", &"z".repeat(128)] {
        // SAFETY: it is no key.
        let error = unsafe { sharing.import(0, key, NBYTES) }.expect_err("no key");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
    let pinned = pattern(vendor, 512, 1);
    let address = NonNull::new(pinned.address()).expect("not null");
    let error = sharing.export(0, address).expect_err("the host's");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}
