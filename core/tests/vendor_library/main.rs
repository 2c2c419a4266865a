//! Vendors behind `flagos_vendor.h`: the example chip linked in and as a library, vendors with a flaw behind a table, libraries
//! that manifests tell of, and libraries and tables that are refused.

#![cfg(all(target_os = "linux", not(loom)))]

#[path = "../vendor_conformance/broken.rs"]
mod broken;
mod chip;
mod compiled;
mod conformance;
mod counted;
mod discovered;
mod export;
mod exported;
mod forms;
mod given_twice;
mod guarded;
mod kernel_tables;
mod kernels;
mod launches;
mod posted;
mod refused;
mod soak;
mod tables;
