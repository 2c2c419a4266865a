//! The checked-in header is the generated one.

#[path = "../examples/header.rs"]
mod header;

#[test]
fn the_checked_in_header_is_the_generated_one() {
    let checked_in = std::fs::read_to_string(header::path()).expect("the header is there");
    assert!(
        checked_in == header::generate(),
        "include/flagos_comm.h is out of date: run `cargo run -p flagos-comm --example header`"
    );
}
