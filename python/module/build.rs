//! Sends the calls of the interpreter that `flagos_bindings` lists in `finalization/calls.rs` through its wrappers.

macro_rules! wanting_the_lock {
    ($(fn $name:ident $arguments:tt $(-> $result:ty)?;)*) => {
        [$(stringify!($name)),*]
    };
}

fn main() {
    let calls = include!("../src/finalization/calls.rs");
    for name in calls {
        // With one dash and in one word, which zig's linker reads as well.
        println!("cargo::rustc-link-arg-cdylib=-Wl,-wrap={name}");
    }
    println!("cargo::rerun-if-changed=../src/finalization/calls.rs");
}
