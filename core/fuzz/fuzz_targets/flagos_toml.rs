//! `flagos.toml`: `cargo +nightly fuzz run flagos_toml corpus/flagos_toml seeds/flagos_toml`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flagos_core_fuzz::flagos_toml(data));
