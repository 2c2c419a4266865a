//! The machine beneath the vendors' simulated libraries keeps what `machine.cc` says of it.

use std::ffi::{CStr, c_char};
use std::io::Write as _;
use std::path::Path;

use libloading::{Library, Symbol};

#[path = "../testing/compiled.rs"]
mod compiled;

type Text = unsafe extern "C" fn(usize) -> *const c_char;

/// The text that a function of the library has for this case.
fn text(function: &Symbol<'_, Text>, case: usize) -> Option<String> {
    // SAFETY: a function of this signature, which returns NULL or a text that lives until the next call.
    let text = unsafe { function(case) };
    if text.is_null() {
        return None;
    }
    // SAFETY: as above.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned())
}

#[test]
fn the_simulated_machine_keeps_its_promises() {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/machine.cc");
    let Some(library) = compiled::simulated("libmachine.so", Path::new(source)) else {
        let _ = writeln!(std::io::stderr(), "skipped: no g++ to compile it with");
        return;
    };
    // SAFETY: the library was compiled from the source beside this one, whose functions have these signatures.
    let library = unsafe { Library::new(library) }.expect("the library loads");
    // SAFETY: as above.
    let (name, run) = unsafe {
        (
            library.get(b"machine_case\0"),
            library.get(b"machine_run\0"),
        )
    };
    let (name, run): (Symbol<'_, Text>, Symbol<'_, Text>) = (name.unwrap(), run.unwrap());
    let names: Vec<_> = (0..).map_while(|case| text(&name, case)).collect();
    assert!(!names.is_empty(), "there are cases");
    let failures: Vec<_> = (0..names.len())
        .filter_map(|case| Some(format!("{}: {}", names[case], text(&run, case)?)))
        .collect();
    assert_eq!(failures, [""; 0]);
    // Its threads may not have ended.
    std::mem::forget(library);
}
