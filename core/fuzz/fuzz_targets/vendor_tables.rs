//! The tables of a vendor's library: `cargo +nightly fuzz run vendor_tables corpus/vendor_tables seeds/vendor_tables`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flagos_core_fuzz::vendor_tables(data));
