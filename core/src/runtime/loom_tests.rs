//! The allocator under loom: every interleaving of a few threads.
//!
//! The device is a fake whose events are finished by the test, so that nothing but the allocator's
//! own lock and the events order the accesses to memory.

use std::any::Any;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;

use super::sync::{AtomicU64, Mutex, Ordering, set_thread_number};
use super::*;
use crate::error::Error;

const SEGMENT: usize = 2 << 20;
const BASE: usize = 0x10_0000;

/// One device with room for one small segment, at an address that is never touched.
struct FakeVendor {
    pending: AtomicU64,
    used: AtomicU64,
    stream: Arc<FakeStream>,
}

/// Work finishes when the test says so.
#[derive(Default)]
struct FakeStream {
    submitted: AtomicU64,
    finished: Arc<AtomicU64>,
}

struct FakeEvent {
    recorded: Mutex<Option<(Arc<AtomicU64>, u64)>>,
}

impl FakeVendor {
    fn allocator() -> (CachingAllocator<Self>, Arc<FakeStream>) {
        let stream = Arc::new(FakeStream::default());
        let vendor = Self {
            pending: AtomicU64::new(0),
            used: AtomicU64::new(0),
            stream: Arc::clone(&stream),
        };
        (
            CachingAllocator::over(vendor).expect("an allocator"),
            stream,
        )
    }
}

impl Vendor for FakeVendor {
    fn name(&self) -> &'static str {
        "fake"
    }
    fn device_count(&self) -> usize {
        1
    }
    fn properties(&self, _: usize) -> Result<DeviceProperties> {
        Ok(DeviceProperties {
            name: "a fake".into(),
            total_memory: SEGMENT as u64,
            multi_processor_count: 1,
            major: 1,
            minor: 0,
        })
    }
    fn memory(&self, _: usize) -> Result<MemoryInfo> {
        Ok(MemoryInfo {
            free: SEGMENT as u64,
            total: SEGMENT as u64,
        })
    }
    fn alloc(&self, _: usize, nbytes: usize) -> Result<NonNull<u8>> {
        if self.used.swap(nbytes as u64, Ordering::AcqRel) != 0 {
            return Err(Error::out_of_memory("alloc", "one segment is all there is"));
        }
        Ok(NonNull::new(BASE as *mut u8).expect("not null"))
    }
    unsafe fn free(&self, _: usize, _: NonNull<u8>, nbytes: usize) {
        assert_eq!(self.used.swap(0, Ordering::AcqRel), nbytes as u64);
    }
    fn pinned_alloc(&self, _: usize) -> Result<NonNull<u8>> {
        Err(Error::unsupported("pinned_alloc", "a fake"))
    }
    unsafe fn pinned_free(&self, _: NonNull<u8>, _: usize) {}
    fn default_stream(&self, device: usize) -> Result<Arc<dyn Stream>> {
        self.stream(device, 0)
    }
    fn stream(&self, _: usize, _: i32) -> Result<Arc<dyn Stream>> {
        let stream = Arc::clone(&self.stream);
        Ok(stream)
    }
    fn event(&self, _: usize, _: bool) -> Result<Arc<dyn Event>> {
        Ok(Arc::new(FakeEvent {
            recorded: Mutex::new(None),
        }))
    }
    fn device_sync(&self, device: usize) -> Result<()> {
        self.quiesce(device)
    }
    fn quiesce(&self, _: usize) -> Result<()> {
        while !self.stream.is_idle() {
            thread::yield_now();
        }
        Ok(())
    }
    fn pending(&self) -> &AtomicU64 {
        &self.pending
    }
}

impl Stream for FakeStream {
    fn device(&self) -> usize {
        0
    }
    fn query(&self) -> Result<bool> {
        Ok(self.is_idle())
    }
    fn is_idle(&self) -> bool {
        self.finished.load(Ordering::Acquire) >= self.submitted.load(Ordering::Acquire)
    }
    fn sync(&self) -> Result<()> {
        Ok(())
    }
    unsafe fn copy(&self, _: *mut u8, _: *const u8, _: usize) -> Result<()> {
        Err(Error::unsupported("copy", "a fake"))
    }
    unsafe fn launch(&self, _: HostFn, _: *mut c_void) -> Result<()> {
        Err(Error::unsupported("launch", "a fake"))
    }
    fn record(&self, event: &dyn Event) -> Result<()> {
        let event: &FakeEvent = event.as_any().downcast_ref().expect("a fake one");
        let place = self.submitted.load(Ordering::Acquire);
        *event.recorded.lock() = Some((Arc::clone(&self.finished), place));
        Ok(())
    }
    fn wait(&self, _: &dyn Event) -> Result<()> {
        Ok(())
    }
}

impl Event for FakeEvent {
    fn query(&self) -> Result<bool> {
        let recorded = self.recorded.lock();
        Ok(recorded
            .as_ref()
            .is_none_or(|(done, at)| done.load(Ordering::Acquire) >= *at))
    }
    fn sync(&self) -> Result<()> {
        Ok(())
    }
    fn elapsed_ms(&self, _: &dyn Event) -> Result<f64> {
        Err(Error::unsupported("elapsed", "a fake"))
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Memory behind the fake addresses. Loom reports accesses that nothing orders.
struct Memory(UnsafeCell<u64>);
// SAFETY: unordered access is what the model looks for.
unsafe impl Sync for Memory {}
// SAFETY: as above.
unsafe impl Send for Memory {}

impl Memory {
    fn write(&self, value: u64) {
        // SAFETY: ordered by the allocator, which is what the model checks.
        self.0.with_mut(|memory| unsafe { *memory = value });
    }
}

/// Allocates the block that [`Memory`] stands for, if it is free.
fn take(allocator: &CachingAllocator<FakeVendor>) -> Option<BlockHandle> {
    let taken = allocator.alloc(0, 0, 1 << 20).ok()??;
    if taken.data.as_ptr() as usize == BASE {
        return Some(taken.block);
    }
    allocator.free(taken.block).expect("allocated");
    None
}

/// A block freed on one thread and allocated on another: the new owner's writes come after the old owner's.
#[test]
fn freeing_hands_memory_over() {
    loom::model(|| {
        let (allocator, _) = FakeVendor::allocator();
        let allocator = Arc::new(allocator);
        let memory = Arc::new(Memory(UnsafeCell::new(0)));
        let block = take(&allocator).expect("the first block");
        memory.write(1);
        let other = {
            let (allocator, memory) = (Arc::clone(&allocator), Arc::clone(&memory));
            thread::spawn(move || {
                memory.write(2);
                allocator.free(block).expect("allocated");
            })
        };
        if let Some(block) = take(&allocator) {
            memory.write(3);
            allocator.free(block).expect("allocated");
        }
        other.join().expect("no panic");
        let allocation = allocator.stats(0).expect("stats").allocation.all;
        assert_eq!(allocation.allocated - allocation.freed, allocation.current);
    });
}

/// Two threads free one block at once: one call succeeds, the other is refused. The second thread has the magazine of its
/// number.
fn freeing_twice_at_once_frees_once(number: usize) {
    loom::model(move || {
        let (allocator, _) = FakeVendor::allocator();
        let allocator = Arc::new(allocator);
        let block = take(&allocator).expect("the first block");
        let other = {
            let allocator = Arc::clone(&allocator);
            thread::spawn(move || {
                set_thread_number(number);
                allocator.free(block).is_ok()
            })
        };
        let here = allocator.free(block).is_ok();
        assert!(here ^ other.join().expect("no panic"));
        assert_eq!(allocator.stats(0).expect("stats").allocation.all.freed, 1);
    });
}

#[test]
fn freeing_twice_at_once_into_one_magazine_frees_once() {
    freeing_twice_at_once_frees_once(0);
}

#[test]
fn freeing_twice_at_once_into_two_magazines_frees_once() {
    freeing_twice_at_once_frees_once(1);
}

/// The same with two magazines: what a thread has freed into its own serves the other one only when the books are
/// brought up to date.
#[test]
fn a_magazine_hands_memory_over() {
    loom::model(|| {
        let (allocator, _) = FakeVendor::allocator();
        let allocator = Arc::new(allocator);
        let memory = Arc::new(Memory(UnsafeCell::new(0)));
        let block = take(&allocator).expect("the first block");
        memory.write(1);
        let other = {
            let (allocator, memory) = (Arc::clone(&allocator), Arc::clone(&memory));
            thread::spawn(move || {
                set_thread_number(1);
                memory.write(2);
                allocator.free(block).expect("allocated");
                if let Some(block) = take(&allocator) {
                    memory.write(4);
                    allocator.free(block).expect("allocated");
                }
            })
        };
        if let Some(block) = take(&allocator) {
            memory.write(3);
            allocator.free(block).expect("allocated");
        }
        other.join().expect("no panic");
        let allocation = allocator.stats(0).expect("stats").allocation.all;
        assert_eq!(allocation.current, 0);
        assert_eq!(allocation.allocated, allocation.freed);
    });
}

/// A block used by another stream is reused only after that stream has finished with it.
#[test]
fn a_recorded_block_waits() {
    loom::model(|| {
        let (allocator, stream) = FakeVendor::allocator();
        let memory = Arc::new(Memory(UnsafeCell::new(0)));
        let other = allocator.streams().create(0, 0).expect("a stream");
        let block = take(&allocator).expect("the first block");
        // Work of the other stream, which writes to the block.
        stream.submitted.store(1, Ordering::Release);
        let device = {
            let memory = Arc::clone(&memory);
            let finished = Arc::clone(&stream.finished);
            thread::spawn(move || {
                memory.write(1);
                finished.store(1, Ordering::Release);
            })
        };
        allocator.record_stream(block, 0, other).expect("allocated");
        allocator.free(block).expect("allocated");
        if let Some(block) = take(&allocator) {
            memory.write(2);
            allocator.free(block).expect("allocated");
        }
        device.join().expect("no panic");
        assert_eq!(allocator.stats(0).expect("stats").active.all.current, 0);
    });
}
