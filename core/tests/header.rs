//! The checked-in headers are the generated ones, and compilers of C and C++ accept them.

use std::io::Write;
use std::process::{Command, Stdio};

#[path = "../examples/header.rs"]
mod header;

#[test]
fn the_checked_in_headers_are_the_generated_ones() {
    for header in &header::HEADERS {
        let checked_in = std::fs::read_to_string(header.path()).expect("the header is there");
        assert!(
            checked_in == header.generate(),
            "include/{} is out of date: run `cargo run -p flagos-core --example header`",
            header.file
        );
    }
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
        .arg(header::folder())
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

/// A program that exports a vendor, and compares the sizes of types with Rust's.
fn vendor(assert: &str) -> String {
    use flagos_core::vendors::library::*;
    use std::mem::size_of;
    let sizes = [
        ("FlagosVendor", size_of::<FlagosVendor>()),
        ("FlagosVendorHost", size_of::<FlagosVendorHost>()),
        (
            "FlagosVendorDescription",
            size_of::<FlagosVendorDescription>(),
        ),
        ("FlagosVendorVariable", size_of::<FlagosVendorVariable>()),
        ("FlagosVendorLibrary", size_of::<FlagosVendorLibrary>()),
        ("FlagosVendorOptions", size_of::<FlagosVendorOptions>()),
        (
            "FlagosVendorProperties",
            size_of::<FlagosVendorProperties>(),
        ),
        ("FlagosVendorMemory", size_of::<FlagosVendorMemory>()),
        ("FlagosVendorTensorMap", size_of::<FlagosVendorTensorMap>()),
        ("FlagosVendorParameter", size_of::<FlagosVendorParameter>()),
        (
            "FlagosVendorKernelOptions",
            size_of::<FlagosVendorKernelOptions>(),
        ),
    ];
    let sizes =
        sizes.map(|(name, size)| format!("{assert}(sizeof({name}) == {size}, \"{name}\");\n"));
    format!(
        "#include \"flagos.h\"\n#include \"flagos_vendor.h\"\n{}
         static FlagosVendor table;
         const FlagosVendor *flagos_vendor(const FlagosVendorHost *host, const char **reason) {{
             FlagosVendorEntry same = flagos_vendor;
             if (same == 0 || host->newest_major < FLAGOS_VENDOR_MAJOR) {{ *reason = \"too old\"; return 0; }}
             if (FLAGOS_VENDOR_HAS(FlagosVendorHost, host, log)) host->log(FLAGOS_VENDOR_LOG_INFO, \"here\");
             table.struct_size = sizeof table;
             return &table;
         }}\n",
        sizes.concat()
    )
}

/// A program that exports kernels, and compares the sizes of types with Rust's.
fn kernels(assert: &str) -> String {
    use flagos_core::vendors::library::*;
    use std::mem::size_of;
    let sizes = [
        ("FlagosKernels", size_of::<FlagosKernels>()),
        ("FlagosKernelCall", size_of::<FlagosKernelCall>()),
        ("FlagosKernelTensor", size_of::<FlagosKernelTensor>()),
        ("FlagosKernelValue", size_of::<FlagosKernelValue>()),
    ];
    let sizes =
        sizes.map(|(name, size)| format!("{assert}(sizeof({name}) == {size}, \"{name}\");\n"));
    format!(
        "#include \"flagos_kernels.h\"\n#include \"flagos.h\"\n{}
         static int32_t run(const FlagosKernel *kernel, const FlagosKernelCall *call) {{
             void *address = 0;
             if (kernel == 0 || call->num_arguments < 1) return FLAGOS_VENDOR_UNSUPPORTED;
             if (call->arguments[0].tag != FLAGOS_VALUE_TENSOR) return FLAGOS_VENDOR_UNSUPPORTED;
             if (call->arguments[0].as.tensor->dtype != FLAGOS_DTYPE_FLOAT32) return FLAGOS_VENDOR_UNSUPPORTED;
             return call->workspace(call->context, 64, &address);
         }}
         static FlagosKernels table;
         const FlagosKernels *flagos_kernels(const FlagosVendorHost *host, const char **reason) {{
             FlagosKernelsEntry same = flagos_kernels;
             if (same == 0 || host->newest_major < FLAGOS_KERNELS_MAJOR) {{ *reason = \"too old\"; return 0; }}
             table.run = run;
             return &table;
         }}
         int32_t first(const FlagosApi *api, FlagosKernelCall *call);
         int32_t first(const FlagosApi *api, FlagosKernelCall *call) {{
             const FlagosKernel *kernel = 0;
             int32_t status = api->stream_library(0, 0, &call->instance, &call->stream);
             if (status == FLAGOS_OK) status = api->kernels()->find(\"aten::relu\", &kernel);
             return status == FLAGOS_OK ? api->kernels()->run(kernel, call) : status;
         }}\n",
        sizes.concat()
    )
}

#[test]
fn c_accepts_them() {
    for program in [program, vendor, kernels] {
        compiles("cc", "c", "-std=c11", &program("_Static_assert"));
    }
}

#[test]
fn cpp_accepts_them() {
    for program in [program, vendor, kernels] {
        compiles("c++", "c++", "-std=c++17", &program("static_assert"));
    }
}
