//! `backends.conf`: `cargo +nightly fuzz run backends_conf corpus/backends_conf seeds/backends_conf`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flagos_core_fuzz::backends_conf(data));
