//! Devices, their memory, and copies.

use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::time::Duration;

use flagos_core::ErrorKind;
use flagos_core::runtime::{ALIGNMENT, Vendor};

use super::probes::{Outcome, Pinned, copy, ensure, good};

pub(super) fn devices_are_described(vendor: &dyn Vendor, _: Duration) -> Outcome {
    let count = vendor.device_count();
    ensure(count > 0, "a vendor without a device")?;
    ensure(!vendor.name().is_empty(), "no name")?;
    for device in 0..count {
        let properties = good("properties", vendor.properties(device))?;
        let memory = good("memory", vendor.memory(device))?;
        ensure(!properties.name.is_empty(), "a device without a name")?;
        ensure(properties.multi_processor_count > 0, "no processors")?;
        ensure(
            properties.total_memory == memory.total,
            "two different totals",
        )?;
        ensure(memory.free <= memory.total, "more free than there is")?;
    }
    for error in [
        vendor.properties(count).err(),
        vendor.memory(count).err(),
        vendor.alloc(count, 1).err(),
        vendor.stream(count, 0).err(),
        vendor.default_stream(count).err(),
        vendor.event(count, false).err(),
        vendor.device_sync(count).err(),
    ] {
        let kind = error.map(|error| error.kind());
        ensure(
            kind == Some(ErrorKind::InvalidArgument),
            format!("device {count}: {kind:?}"),
        )?;
    }
    Ok(())
}

pub(super) fn memory_is_disjoint(vendor: &dyn Vendor, _: Duration) -> Outcome {
    let sizes = [1, 512, 4096, 2 << 20, 2 << 20, (2 << 20) + 512, 20 << 20];
    let mut blocks = Vec::new();
    let mut outcome = Ok(());
    for size in sizes {
        match vendor.alloc(0, size) {
            Ok(address) => blocks.push((address, size)),
            Err(error) => outcome = Err(format!("alloc of {size}: {error}")),
        }
    }
    let range = |&(address, size): &(NonNull<u8>, usize)| {
        let start = address.as_ptr() as usize;
        start..start + size
    };
    for (i, a) in blocks.iter().map(range).enumerate() {
        outcome = outcome.and(ensure(
            a.start % ALIGNMENT == 0,
            format!("{a:x?} is not aligned"),
        ));
        for b in blocks.iter().map(range).skip(i + 1) {
            let apart = a.end <= b.start || b.end <= a.start;
            outcome = outcome.and(ensure(apart, format!("{a:x?} and {b:x?} overlap")));
        }
    }
    for (address, size) in blocks {
        // SAFETY: allocated above with this size, unused.
        unsafe { vendor.free(0, address, size) };
    }
    outcome
}

pub(super) fn memory_is_accounted_for(vendor: &dyn Vendor, _: Duration) -> Outcome {
    // Other processes may use memory of the same device, so that one try of several has to succeed.
    let attempts = (0..5).map(|_| one_allocation_is_accounted_for(vendor));
    let attempts: Vec<_> = attempts.collect();
    let right = attempts.iter().any(Result::is_ok);
    ensure(right, format!("{attempts:?}"))
}

fn one_allocation_is_accounted_for(vendor: &dyn Vendor) -> Outcome {
    const NBYTES: usize = 8 << 20;
    let free = || good("memory", vendor.memory(0)).map(|memory| memory.free);
    let before = free()?;
    let address = good("alloc", vendor.alloc(0, NBYTES))?;
    let during = free()?;
    // SAFETY: just allocated with this size, unused.
    unsafe { vendor.free(0, address, NBYTES) };
    ensure(
        during + NBYTES as u64 <= before,
        format!("{before} free before, {during} after"),
    )?;
    ensure(free()? == before, "freed memory does not come back")
}

pub(super) fn too_much_is_refused(vendor: &dyn Vendor, _: Duration) -> Outcome {
    let total = good("memory", vendor.memory(0))?.total as usize;
    for nbytes in [total + 1, usize::MAX / 2, usize::MAX] {
        let outcome = vendor.alloc(0, nbytes);
        let kind = outcome.map_err(|error| error.kind()).err();
        ensure(
            kind == Some(ErrorKind::OutOfMemory),
            format!("{nbytes} bytes: {kind:?}"),
        )?;
    }
    let address = good("alloc afterwards", vendor.alloc(0, 4096))?;
    // SAFETY: just allocated with this size, unused.
    unsafe { vendor.free(0, address, 4096) };
    Ok(())
}

pub(super) fn copies_arrive(vendor: &dyn Vendor, _: Duration) -> Outcome {
    const NBYTES: usize = 1 << 20;
    let stream = good("stream", vendor.stream(0, 0))?;
    let (from, to) = (Pinned::new(vendor, NBYTES)?, Pinned::new(vendor, NBYTES)?);
    for i in 0..NBYTES {
        from.byte(i).store((i * 31 % 251) as u8, Ordering::Relaxed);
    }
    let device = good("alloc", vendor.alloc(0, 2 * NBYTES))?;
    let [a, b] = [0, NBYTES].map(|offset| device.as_ptr().wrapping_add(offset));
    let outcome = copy(&*stream, a, from.address(), NBYTES)
        .and_then(|()| copy(&*stream, b, a, NBYTES))
        .and_then(|()| copy(&*stream, to.address(), b, NBYTES))
        .and_then(|()| copy(&*stream, std::ptr::null_mut(), std::ptr::null(), 0))
        .and_then(|()| good("sync", stream.sync()));
    // SAFETY: allocated above with this size, and the stream is synchronised.
    unsafe { vendor.free(0, device, 2 * NBYTES) };
    outcome?;
    let byte = |pinned: &Pinned<'_>, i| pinned.byte(i).load(Ordering::Relaxed);
    let wrong = (0..NBYTES).find(|&i| byte(&from, i) != byte(&to, i));
    ensure(wrong.is_none(), format!("byte {wrong:?} differs"))
}
