//! Writes `comm/src/library/bindings/` from the headers of this folder, or with `--check` compares.
//! `make bindings` runs it with the libclang of requirements/dev.txt.

use std::path::Path;
use std::process::ExitCode;

use bindgen::{Builder, EnumVariation};
use quote::quote;
use syn::{File, ForeignItem, Item};

const LIBRARIES: [&str; 3] = ["nccl", "flagcx", "hccl"];

/// Turns functions into types, because libraries are opened at run time, and their names have a vendor's prefix.
fn functions_as_types(file: File) -> File {
    let items = file.items.into_iter().flat_map(|item| match item {
        Item::ForeignMod(block) => block.items.into_iter().map(as_type).collect(),
        other => vec![other],
    });
    File {
        items: items.collect(),
        ..file
    }
}

fn as_type(item: ForeignItem) -> Item {
    let ForeignItem::Fn(function) = item else {
        panic!("the headers declare functions only");
    };
    let (name, arguments, result) = (
        &function.sig.ident,
        &function.sig.inputs,
        &function.sig.output,
    );
    syn::parse2(quote!(pub type #name = unsafe extern "C" fn(#arguments) #result;))
        .expect("a function has a type")
}

fn generate(header: &Path) -> String {
    let name = header.to_str().expect("paths here are text");
    let bindings = Builder::default()
        .header(name)
        .allowlist_file(name)
        // A closed enumeration would be undefined behaviour when a newer library answers an unknown code.
        .default_enum_style(EnumVariation::NewType {
            is_bitfield: false,
            is_global: false,
        })
        .generate_comments(false)
        .disable_header_comment()
        .formatter(bindgen::Formatter::None)
        .use_core()
        .generate()
        .expect("the header can be read");
    let file = syn::parse_file(&bindings.to_string()).expect("bindgen writes Rust");
    format!(
        "// Generated from comm/bindings/{} by `make bindings`: do not edit.\n\n{}",
        header
            .file_name()
            .and_then(|name| name.to_str())
            .expect("it has a name"),
        prettyplease::unparse(&functions_as_types(file))
    )
}

fn main() -> ExitCode {
    let check = std::env::args()
        .nth(1)
        .is_some_and(|argument| argument == "--check");
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = here.join("../src/library/bindings");
    let mut stale = false;
    for library in LIBRARIES {
        let text = generate(&here.join(library).with_extension("h"));
        let path = folder.join(library).with_extension("rs");
        if !check {
            std::fs::create_dir_all(&folder).expect("the folder can be made");
            std::fs::write(&path, text).expect("the file can be written");
        } else if std::fs::read_to_string(&path).unwrap_or_default() != text {
            eprintln!("comm/src/library/bindings/{library}.rs is out of date: run `make bindings`");
            stale = true;
        }
    }
    if stale {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
