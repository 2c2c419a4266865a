//! The checked-in header is the generated one, and compilers of C and C++ accept it.

use std::io::Write;
use std::process::{Command, Stdio};

#[path = "../examples/header.rs"]
mod header;

#[test]
fn the_checked_in_header_is_the_generated_one() {
    let checked_in = std::fs::read_to_string(header::path()).expect("the header is there");
    assert!(
        checked_in == header::generate(),
        "include/flagos.h is out of date: run `cargo run -p flagos-core --example header`"
    );
}

/// Compiles a program against the header, without writing a file.
fn compiles(compiler: &str, language: &str, standard: &str, program: &str) {
    let mut child = Command::new(compiler)
        .args([
            "-x",
            language,
            standard,
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
        ])
        .arg("-fsyntax-only")
        .arg("-I")
        .arg(header::path().parent().expect("a folder"))
        .arg("-")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{compiler} cannot be run: {error}"));
    let mut input = child.stdin.take().expect("piped");
    input
        .write_all(program.as_bytes())
        .expect("the compiler reads");
    drop(input);
    let output = child.wait_with_output().expect("the compiler ends");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A program that uses the entries that adapters use, and compares the sizes of types with Rust's.
fn program(assert: &str) -> String {
    let sizes = [
        (
            "FlagosApi",
            std::mem::size_of::<flagos_core::abi::FlagosApi>(),
        ),
        (
            "FlagosMemoryStats",
            std::mem::size_of::<flagos_core::abi::FlagosMemoryStats>(),
        ),
        (
            "FlagosDeviceProperties",
            std::mem::size_of::<flagos_core::abi::FlagosDeviceProperties>(),
        ),
        ("FlagosOpSlot", 64),
    ];
    let sizes =
        sizes.map(|(name, size)| format!("{assert}(sizeof({name}) == {size}, \"{name}\");\n"));
    format!(
        "#include \"flagos.h\"\n{}
         int run(const FlagosApi *api, void *data);
         int run(const FlagosApi *api, void *data) {{
             struct FlagosOpSlot *slot = api->op_slot(\"aten::mm\");
             __atomic_fetch_add(&slot->calls, 1, __ATOMIC_RELAXED);
             if (__atomic_load_n(api->pending(), __ATOMIC_ACQUIRE) != 0) return api->stream_sync(0, 0);
             return api->mem_alloc(0, 0, 64, &data, &data) == FLAGOS_OK;
         }}\n",
        sizes.concat()
    )
}

#[test]
fn c_accepts_it() {
    compiles("cc", "c", "-std=c11", &program("_Static_assert"));
}

#[test]
fn cpp_accepts_it() {
    compiles("c++", "c++", "-std=c++17", &program("static_assert"));
}
