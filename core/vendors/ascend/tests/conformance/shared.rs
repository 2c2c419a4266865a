//! Device memory of one process in another one: this program starts itself for that.

use std::process::Command;
use std::ptr::NonNull;

use flagos_core::ErrorKind;

use crate::{copy, fill, open};

const NBYTES: usize = 3 << 20;
/// Where in the memory the other process reads and writes.
const OFFSET: usize = 4096 + 512;
const COUNT: usize = 1000;

#[test]
fn another_process_uses_memory() {
    let Some(ascend) = open() else { return };
    let vendor = &*ascend.vendor;
    let stream = vendor.stream(0, 0).expect("a stream");
    let memory = vendor.alloc(0, NBYTES).expect("memory");
    let address = NonNull::new(memory.as_ptr().wrapping_add(OFFSET)).expect("not NULL");
    let mut bytes = vec![0; COUNT];
    fill(&mut bytes, 1);
    copy(&*stream, address.as_ptr(), bytes.as_ptr(), COUNT);
    stream.sync().expect("it ran");
    let exported = match vendor
        .sharing()
        .and_then(|shared| shared.export(0, address))
    {
        Ok(exported) => exported,
        Err(error) => {
            // CANN 8.1 has no functions for it, and the error says which.
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            let text = error.to_string();
            assert!(text.contains("has no aclrtIpcMemGetExportKey, "), "{text}");
            // SAFETY: allocated with this size; nobody uses it.
            return unsafe { vendor.free(0, memory, NBYTES) };
        }
    };
    let sharing = vendor.sharing().expect("it can");
    assert!(exported.offset >= OFFSET && exported.nbytes >= NBYTES);
    assert_eq!(sharing.export(0, memory).expect("a key").key, exported.key);
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "shared::inside::the_other_process"])
        .args(["--ignored", "--nocapture"])
        .env("KEY", &exported.key)
        .env("OFFSET", exported.offset.to_string())
        .env("WHOLE", exported.nbytes.to_string())
        .output()
        .expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let mut expected = vec![0; COUNT];
    fill(&mut expected, 2);
    copy(&*stream, bytes.as_mut_ptr(), address.as_ptr(), COUNT);
    stream.sync().expect("it ran");
    assert!(bytes == expected, "what the other process wrote");
    // SAFETY: allocated with this size; the other process has closed it.
    unsafe { vendor.free(0, memory, NBYTES) };
    vendor.device_sync(0).expect("it settles");
    // SAFETY: the key is not used: it is one of this process.
    let error = unsafe { sharing.import(0, &exported.key, exported.nbytes) };
    drop(error.expect_err("the memory is gone"));
    drop(sharing.export(0, address).expect_err("the memory is gone"));
}

mod inside {
    use std::ptr::NonNull;

    use super::{COUNT, OFFSET};
    use crate::{copy, fill, open};

    #[test]
    #[ignore = "another process starts it"]
    fn the_other_process() {
        let told = |name| std::env::var(name).expect("told");
        let ascend = open().expect("a device");
        let vendor = &*ascend.vendor;
        let sharing = vendor.sharing().expect("it can");
        let number = |name| told(name).parse().expect("a number");
        let (key, offset, whole): (String, usize, usize) =
            (told("KEY"), number("OFFSET"), number("WHOLE"));
        let stream = vendor.stream(0, 0).expect("a stream");
        // SAFETY: the other process keeps the memory.
        let import = || unsafe { sharing.import(0, &key, whole) }.expect("imported");
        let (memory, same) = (import(), import());
        assert_eq!(memory, same);
        assert!(offset >= OFFSET);
        let address = memory.as_ptr().wrapping_add(offset);
        let (mut bytes, mut expected) = (vec![0; COUNT], vec![0; COUNT]);
        fill(&mut expected, 1);
        copy(&*stream, bytes.as_mut_ptr(), address, COUNT);
        stream.sync().expect("it ran");
        assert!(bytes == expected);
        // Memory of another process is not passed on.
        let inner = NonNull::new(address).expect("not NULL");
        assert!(sharing.export(0, inner).is_err());
        // SAFETY: imported twice, and used once more.
        unsafe { sharing.close(0, same) };
        fill(&mut bytes, 2);
        copy(&*stream, address, bytes.as_ptr(), COUNT);
        stream.sync().expect("it ran");
        // As a process does that ends without having closed it.
        sharing.close_all();
        // SAFETY: imported once more than it was closed.
        unsafe { sharing.close(0, memory) };
    }
}
