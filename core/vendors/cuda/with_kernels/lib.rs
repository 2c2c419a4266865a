//! The vendor `cuda` as a library of `flagos_vendor.h` and `flagos_kernels.h`, under the name `cudalib`.
//!
//! It shows on a real device what a vendor needs to serve a framework by a library: the core's own memory and streams,
//! and a handful of kernels, here of PTX and for `float32` alone. A call that they do not compute is declined.

mod call;
mod layout;
mod loaded;
mod operators;
mod ptx;
mod table;
mod vendor;

flagos_vendor_kit::export_vendor!(vendor::Cudalib);
flagos_vendor_kit::export_kernels!(table::table);
