//! Kernels in the order of streams, from several threads, and the memory that they may touch.

use std::sync::Arc;
use std::sync::mpsc;

use flagos_core::ErrorKind;
use flagos_core::runtime::launch_closure;
use flagos_core::vendors::library::*;

use super::caller::{Caller, Value};
use super::tensor::Tensor;
use crate::chip::forked;
use crate::forms::{loaded, opened};

const FLOAT: i32 = FLAGOS_DTYPE_FLOAT32;

fn add_one(caller: &Caller, to: &Tensor, from: &Tensor) {
    let one = Value::Host(FLAGOS_DTYPE_INT64, 1.0);
    let arguments = [Value::Tensor(from), one, Value::Int(1)];
    caller.call("aten::add.Tensor", &arguments, &[to]);
}

/// Everything that the call points at is gone when the work runs; [`Caller`] overwrites it.
#[test]
fn a_kernel_is_queued_and_keeps_what_it_needs() {
    let caller = Caller::new(1);
    let (from, to) = (
        caller.result(FLOAT, &[30, 20]),
        caller.result(FLOAT, &[30, 20]),
    );
    let (open, opened) = mpsc::channel::<()>();
    launch_closure(&*caller.stream, move || {
        opened.recv().expect("the test opens")
    })
    .expect("queued");
    add_one(&caller, &to, &from.permuted(&[0, 1]));
    add_one(&caller, &from, &to);
    assert!(!caller.stream.query().expect("a state"));
    open.send(()).expect("the work waits");
    assert_eq!(caller.values(&from), [121.0; 600]);
}

#[test]
fn kernels_follow_copies_and_events() {
    let first = Caller::new(0);
    let second = Caller::on(&first.vendor, 0);
    let (a, b) = (first.result(FLOAT, &[500]), first.result(FLOAT, &[500]));
    let event = first.vendor.event(0, false).expect("an event");
    for round in 0..200 {
        let fresh = vec![round as f32; 500];
        let to = a.memory.address.as_ptr();
        // SAFETY: `fresh` lives until the sync below.
        unsafe { first.stream.copy(to, fresh.as_ptr().cast(), 2000) }.expect("queued");
        add_one(&first, &b, &a);
        first.stream.record(&*event).expect("queued");
        second.stream.wait(&*event).expect("queued");
        add_one(&second, &a, &b);
        assert_eq!(second.values(&a), [f64::from(round) + 2.0; 500]);
        first.stream.sync().expect("synchronised");
    }
}

/// Small tensors of all threads lie in one allocation, as blocks of a caching allocator do.
#[test]
fn eight_threads_compute_in_one_allocation() {
    const LENGTH: i64 = 33;
    let owner = Caller::new(0);
    let shared = owner.result(FLOAT, &[8 * LENGTH]);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (vendor, shared) = (&owner.vendor, &shared);
            scope.spawn(move || {
                let caller = Caller::on(vendor, 0);
                let own = shared.view((thread * LENGTH) as usize, &[LENGTH], &[1]);
                for _ in 0..1000 {
                    add_one(&caller, &own, &own);
                }
                caller.stream.sync().expect("synchronised");
            });
        }
    });
    assert_eq!(owner.values(&shared), vec![1119.0; 8 * LENGTH as usize]);
}

#[test]
fn the_host_cannot_read_what_a_kernel_has_written() {
    let caller = Caller::new(0);
    let tensor = caller.result(FLOAT, &[4]);
    add_one(&caller, &tensor, &tensor);
    caller.stream.sync().expect("synchronised");
    let address = tensor.memory.address.as_ptr();
    let status = forked(|| {
        // SAFETY: deliberately violated: the process is to end here.
        unsafe { address.read_volatile() }.into()
    });
    assert!(libc::WIFSIGNALED(status), "{status:#x}");
    assert_eq!(libc::WTERMSIG(status), libc::SIGSEGV);
}

#[test]
fn a_kernel_outside_its_memory_loses_the_device() {
    let caller = Caller::new(0);
    let tensor = caller.result(FLOAT, &[4]);
    let other = Caller::on(&caller.vendor, 1);
    let (there, beyond) = (other.result(FLOAT, &[1]), tensor.view(0, &[1 << 20], &[1]));
    add_one(&caller, &beyond, &beyond);
    let event = caller.vendor.event(0, false).expect("an event");
    caller.stream.record(&*event).expect("queued");
    for error in [caller.stream.sync().err(), event.sync().err()] {
        let error = error.expect("the device is lost");
        assert_eq!(error.kind(), ErrorKind::Device);
        assert!(
            loaded().description().means_lost(&error.to_string()),
            "{error}"
        );
    }
    let arguments = [Value::Tensor(&tensor)];
    let (code, text) = caller
        .queue("aten::neg", &arguments, &[&tensor])
        .expect_err("lost");
    assert_eq!(code, FLAGOS_VENDOR_DEVICE_LOST, "{text}");
    add_one(&other, &there, &there);
    assert_eq!(other.values(&there), [120.0], "the other device works");
}

#[test]
fn tensors_of_another_device_are_reached() {
    let vendor = opened(loaded());
    let [here, there] = [0, 1].map(|device| Caller::on(&vendor, device));
    let (from, to) = (here.result(FLOAT, &[300]), there.result(FLOAT, &[300]));
    here.call(
        "aten::copy_",
        &[Value::Tensor(&to), Value::Tensor(&from)],
        &[&to],
    );
    here.stream.sync().expect("copied");
    assert_eq!(there.values(&to), [119.0; 300]);
    drop(Arc::clone(&vendor));
}
