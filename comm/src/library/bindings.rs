//! The interfaces of the vendors' libraries, without their prefixes: types of functions, structures and codes.
//!
//! Generated from the headers in `comm/bindings`, which state what is used of them: `make bindings`.

#![allow(
    dead_code,
    missing_docs,
    non_camel_case_types,
    non_upper_case_globals,
    clippy::all,
    reason = "generated, in the words of C"
)]

#[rustfmt::skip]
pub mod flagcx;
#[rustfmt::skip]
pub mod hccl;
#[rustfmt::skip]
pub mod nccl;
