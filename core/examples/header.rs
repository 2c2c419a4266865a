//! Writes the headers in `include/` from the types they are of: `cargo run -p flagos-core --example header`.

use std::path::{Path, PathBuf};

use cbindgen::{Builder, Config, DocumentationStyle, Language, LayoutConfig, Style};

/// A header that is generated.
pub struct Header {
    /// The file in `include/`.
    pub file: &'static str,
    /// The Rust file with the types.
    source: &'static str,
    /// What the header is, in one line.
    title: &'static str,
    /// The headers of this folder that it includes.
    includes: &'static [&'static str],
    /// The macro that guards against a second inclusion.
    guard: &'static str,
    /// What follows the inclusions.
    macros: Option<&'static str>,
    /// What follows the types.
    trailer: Option<&'static str>,
    /// The types that the header is for.
    types: &'static [&'static str],
}

/// Every header.
pub const HEADERS: [Header; 3] = [
    Header {
        file: "flagos.h",
        source: "src/abi/types.rs",
        title: "The C table of the flagos core, for C and C++.",
        includes: &["flagos_vendor.h", "flagos_kernels.h"],
        guard: "FLAGOS_H",
        macros: Some(ALIGNED),
        trailer: None,
        types: &["FlagosApi", "FlagosVendorInfo"],
    },
    Header {
        file: "flagos_vendor.h",
        source: "src/vendors/library/types.rs",
        title: "The interface of a vendor of devices: what a library implements so that flagos runs on its chip.",
        includes: &[],
        guard: "FLAGOS_VENDOR_H",
        macros: Some(HAS),
        trailer: Some(ENTRY),
        types: &[
            "FlagosVendor",
            "FlagosVendorHost",
            "FlagosVendorDescription",
            "FlagosVendorEntry",
        ],
    },
    Header {
        file: "flagos_kernels.h",
        source: "src/vendors/library/kernels/types.rs",
        title: "The interface of kernels: what a library implements, beside flagos_vendor.h, so that its chip computes.",
        guard: "FLAGOS_KERNELS_H",
        includes: &["flagos_vendor.h"],
        macros: None,
        trailer: Some(KERNELS_ENTRY),
        types: &["FlagosKernels", "FlagosKernelCall", "FlagosKernelsEntry"],
    },
];

impl Header {
    /// The path of the checked-in header.
    pub fn path(&self) -> PathBuf {
        folder().join(self.file)
    }

    /// The text of the header.
    pub fn generate(&self) -> String {
        let heading = format!(
            "/* {}\n * SPDX-License-Identifier: Apache-2.0\n * Generated from core/{} by `cargo run -p flagos-core \
             --example header`: do not edit. */",
            self.title, self.source
        );
        let config = Config {
            language: Language::C,
            style: Style::Both,
            documentation_style: DocumentationStyle::Doxy,
            cpp_compat: false,
            usize_is_size_t: true,
            no_includes: true,
            sys_includes: vec!["stddef.h".into(), "stdint.h".into()],
            includes: self.includes.iter().map(|&file| file.into()).collect(),
            header: Some(heading),
            include_guard: Some(self.guard.into()),
            after_includes: self.macros.map(Into::into),
            trailer: self.trailer.map(Into::into),
            layout: LayoutConfig {
                aligned_n: Some("FLAGOS_ALIGNED".into()),
                ..LayoutConfig::default()
            },
            export: cbindgen::ExportConfig {
                include: self.types.iter().map(|&name| name.into()).collect(),
                ..Default::default()
            },
            ..Config::default()
        };
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(self.source);
        let bindings = Builder::new()
            .with_config(config)
            .with_src(source)
            .generate();
        let mut text = Vec::new();
        bindings
            .expect("the types can be described in C")
            .write(&mut text);
        String::from_utf8(text).expect("a header is text")
    }
}

/// The folder of the headers.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include")
}

/// The alignment of a type in words that compilers of C11 and C++17 share, whose standards differ here.
const ALIGNED: &str = "
#if defined(_MSC_VER)
#define FLAGOS_ALIGNED(n) __declspec(align(n))
#else
#define FLAGOS_ALIGNED(n) __attribute__((aligned(n)))
#endif";

/// The rule of sizes, in words of C11 and C++17.
const HAS: &str = "
/**
 * Whether the struct at `pointer`, which the other side made, has the member: its `struct_size` tells. Nobody reads or
 * writes a member that the other side does not have.
 */
#define FLAGOS_VENDOR_HAS(type, pointer, member) \\
  ((pointer)->struct_size >= offsetof(type, member) + sizeof((pointer)->member))

#if defined(_MSC_VER)
#define FLAGOS_VENDOR_EXPORT __declspec(dllexport)
#else
#define FLAGOS_VENDOR_EXPORT __attribute__((visibility(\"default\")))
#endif";

/// The declaration of the one function that a library exports.
const ENTRY: &str = "\
#if defined(__cplusplus)
extern \"C\"
#endif
FLAGOS_VENDOR_EXPORT const FlagosVendor *flagos_vendor(const FlagosVendorHost *host, const char **reason);";

/// The declaration of the function that a library with kernels exports too.
const KERNELS_ENTRY: &str = "\
#if defined(__cplusplus)
extern \"C\"
#endif
FLAGOS_VENDOR_EXPORT const FlagosKernels *flagos_kernels(const FlagosVendorHost *host, const char **reason);";

#[allow(
    dead_code,
    reason = "the test of the headers includes this file and only compares"
)]
fn main() {
    for header in &HEADERS {
        std::fs::write(header.path(), header.generate()).expect("include/ is writable");
    }
}
