//! A vendor's manifest: `cargo +nightly fuzz run vendor_manifest corpus/vendor_manifest seeds/vendor_manifest`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flagos_core_fuzz::vendor_manifest(data));
