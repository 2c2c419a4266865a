//! The C table over a vendor that is a library: the example chip. The table belongs to the process, so that this file has
//! one test.

#![cfg(all(target_os = "linux", not(loom)))]

use std::ffi::CStr;
use std::ptr::{null, null_mut};

use flagos_core::abi::*;
use flagos_core::vendors::library::FLAGOS_VENDOR_UNSUPPORTED;

#[test]
fn kernels_and_streams_are_the_librarys() {
    let folder = tempfile::tempdir().expect("a folder");
    let manifest = folder.path().join("example.toml");
    let library = flagos_example_chip::LIBRARY;
    let text = format!("name='example'\naliases=['chip']\ninterface='1.0'\nlibrary='{library}'");
    std::fs::write(&manifest, text).expect("own folder");
    // SAFETY: no other thread of this process uses the environment.
    unsafe {
        std::env::set_var("FLAGOS_VENDOR_PATH", &manifest);
        std::env::set_var("FLAGOS_VENDOR", "example");
    }
    let api = api();
    let (mut instance, mut stream) = (null_mut(), null_mut());
    let kernels = (api.kernels)();
    assert!(!kernels.is_null(), "of the vendor that would serve");
    // SAFETY: valid outputs.
    let early = unsafe { (api.stream_library)(0, 0, &mut instance, &mut stream) };
    assert_eq!(early, FLAGOS_NOT_INITIALIZED);

    assert_eq!((api.init)(), FLAGOS_OK);
    let mut kernel = null();
    // SAFETY: the checked table of the chip, a text and a valid output.
    let code = unsafe {
        assert_eq!((api.kernels)(), kernels);
        let kernels = kernels.as_ref().expect("kernels");
        let find = kernels.find.expect("required");
        find(c"aten::no_such.operator".as_ptr(), &mut kernel)
    };
    assert_eq!((code, kernel), (FLAGOS_VENDOR_UNSUPPORTED, null()));

    let mut made = 0;
    // SAFETY: a valid output.
    assert_eq!(unsafe { (api.stream_create)(0, 0, &mut made) }, FLAGOS_OK);
    let known = [(0, 0), (1, 0), (0, made), (0, 0)].map(|(device, id)| {
        // SAFETY: valid outputs.
        let code = unsafe { (api.stream_library)(device, id, &mut instance, &mut stream) };
        assert_eq!(code, FLAGOS_OK);
        (instance, stream)
    });
    assert!(known.iter().all(|(of, _)| *of == known[0].0));
    assert!(known[0].1 != known[1].1 && known[0].1 != known[2].1);
    assert_eq!(known[0], known[3], "the same handle each time");

    // SAFETY: an output is missing on purpose; the other is valid.
    unsafe {
        let code = (api.stream_library)(0, 0, null_mut(), &mut stream);
        assert_eq!(code, FLAGOS_INVALID_ARGUMENT);
        let code = (api.stream_library)(0, 7, &mut instance, &mut stream);
        assert_eq!(code, FLAGOS_INVALID_ARGUMENT);
        let text = CStr::from_ptr((api.last_error)()).to_string_lossy();
        assert!(text.contains("no stream 7"), "{text}");
    }
}
