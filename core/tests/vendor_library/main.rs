//! Vendors behind `flagos_vendor.h`: the example chip linked in and as a library, vendors with a flaw behind a table, and
//! libraries and tables that are refused.

#![cfg(all(target_os = "linux", not(loom)))]

#[path = "../vendor_conformance/broken.rs"]
mod broken;
#[path = "../vendor_conformance/checks/mod.rs"]
mod checks;
mod chip;
mod conformance;
mod exported;
mod forms;
mod guarded;
mod refused;
mod tables;
