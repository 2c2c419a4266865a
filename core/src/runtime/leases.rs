//! Who holds a block: the part of a block that is read and changed without the device's lock.
//!
//! One word per slot says whether the block is with a caller, and what a free of it needs to know. It changes by
//! compare-and-swap, so that of two threads that free a block at once one succeeds. Everything else about a block
//! ([`super::block::Block`]) is under the device's lock.

use std::sync::OnceLock;

use super::block::{BlockHandle, BlockId};
use super::sync::{AtomicU64, Ordering};

/// Leases in the first chunk; each chunk has twice as many as the one before.
const FIRST: usize = if cfg!(loom) { 2 } else { 1024 };
const CHUNKS: usize = 32;

/// The states of a lease, in the lowest bits of its word.
const STATE: u64 = 0b11;
/// With the allocator.
const IDLE: u64 = 0;
/// With a caller.
const LIVE: u64 = 1;
/// With a caller, and used by other streams than its own.
const SHARED: u64 = 2;
/// Freed by its caller, and in a magazine.
const IN_MAGAZINE: u64 = 3;

/// Above the state: the generation, then the bytes asked for (0 for a block that no magazine takes), then the stream.
const GENERATION_SHIFT: u32 = 2;
const NBYTES_SHIFT: u32 = GENERATION_SHIFT + BlockHandle::GENERATION_BITS;
const NBYTES_BITS: u32 = 21;
const STREAM_SHIFT: u32 = NBYTES_SHIFT + NBYTES_BITS;
const GENERATION: u64 = (BlockHandle::GENERATION_MASK as u64) << GENERATION_SHIFT;

/// The key of a block in a magazine: requests of the same stream and number of bytes may have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted(u64);

impl Wanted {
    /// None for what no magazine has: too many bytes.
    #[inline]
    pub(super) fn new(stream: u64, nbytes: usize) -> Option<Self> {
        let fits = nbytes < 1 << NBYTES_BITS && stream < 1 << (64 - STREAM_SHIFT);
        fits.then_some(Self(stream << NBYTES_BITS | nbytes as u64))
    }

    /// The bytes asked for.
    pub(super) fn nbytes(self) -> usize {
        (self.0 & ((1 << NBYTES_BITS) - 1)) as usize
    }
}

#[derive(Debug)]
struct Lease {
    word: AtomicU64,
    /// Set before the block is handed out, while nobody else looks.
    address: AtomicU64,
}

/// A freed block on its way into a magazine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CachedBlock {
    pub(super) id: BlockId,
    pub(super) address: usize,
    pub(super) wanted: Wanted,
}

/// The leases of one device, by slot. They never move.
#[derive(Debug)]
pub(super) struct Leases {
    chunks: [OnceLock<Box<[Lease]>>; CHUNKS],
}

impl Default for Leases {
    fn default() -> Self {
        Self {
            chunks: std::array::from_fn(|_| OnceLock::new()),
        }
    }
}

/// The chunk of a slot, and the place in it.
#[inline]
fn place(id: BlockId) -> (usize, usize) {
    let id = id as usize;
    let chunk = (id / FIRST + 1).ilog2() as usize;
    (chunk, id - FIRST * ((1 << chunk) - 1))
}

#[inline]
fn generation_of(word: u64) -> u32 {
    ((word & GENERATION) >> GENERATION_SHIFT) as u32
}

/// Whether a caller holds the block of the word by this handle.
#[inline]
fn is_held(word: u64, handle: BlockHandle) -> bool {
    matches!(word & STATE, LIVE | SHARED) && generation_of(word) == handle.generation()
}

/// The word after a lease: of the next generation.
#[inline]
fn freed(word: u64, state: u64) -> u64 {
    let next = (word + (1 << GENERATION_SHIFT)) & GENERATION;
    word & !(GENERATION | STATE) | next | state
}

impl Leases {
    #[inline]
    fn get(&self, id: BlockId) -> Option<&Lease> {
        let (chunk, place) = place(id);
        self.chunks[chunk].get()?.get(place)
    }

    /// The lease of a slot, made if it is the first of its chunk.
    #[inline]
    fn at(&self, id: BlockId) -> &Lease {
        let (chunk, place) = place(id);
        let chunk = self.chunks[chunk].get_or_init(|| {
            (0..FIRST << chunk)
                .map(|_| Lease {
                    word: AtomicU64::new(IDLE),
                    address: AtomicU64::new(0),
                })
                .collect()
        });
        &chunk[place]
    }

    /// Gives an idle block to a caller; the generation to put in its handle. `wanted` is for what a magazine may keep.
    #[inline]
    pub(super) fn grant(&self, id: BlockId, address: usize, wanted: Option<Wanted>) -> u32 {
        let lease = self.at(id);
        let generation = lease.word.load(Ordering::Relaxed) & GENERATION;
        let wanted = wanted.map_or(0, |wanted| wanted.0);
        lease.address.store(address as u64, Ordering::Relaxed);
        lease.word.store(
            wanted << NBYTES_SHIFT | generation | LIVE,
            Ordering::Release,
        );
        generation_of(generation)
    }

    /// Ends a lease: the block is the allocator's. False if no caller holds it by this handle.
    #[inline]
    pub(super) fn end(&self, handle: BlockHandle) -> bool {
        self.update(handle, |word| Some(freed(word, IDLE)))
            .is_some()
    }

    /// Ends a lease, if a magazine may keep the block.
    #[inline]
    pub(super) fn keep(&self, handle: BlockHandle) -> Option<CachedBlock> {
        let (lease, word) = self.update(handle, |word| {
            let keepable = word & STATE == LIVE && word >> NBYTES_SHIFT != 0;
            keepable.then(|| freed(word, IN_MAGAZINE))
        })?;
        Some(CachedBlock {
            id: handle.id(),
            address: lease.address.load(Ordering::Relaxed) as usize,
            wanted: Wanted(word >> NBYTES_SHIFT),
        })
    }

    /// Changes the word of a block that a caller holds by this handle: the lease, and the word before. None if nobody
    /// does, or `next` has no word.
    #[inline]
    fn update(
        &self,
        handle: BlockHandle,
        next: impl Fn(u64) -> Option<u64>,
    ) -> Option<(&Lease, u64)> {
        let lease = self.get(handle.id())?;
        let next = |word| is_held(word, handle).then(|| next(word)).flatten();
        let word = lease
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
        Some((lease, word.ok()?))
    }

    /// Gives a block from a magazine to a caller; the generation to put in its handle.
    #[inline]
    pub(super) fn grant_again(&self, id: BlockId) -> u32 {
        self.change(id, IN_MAGAZINE, LIVE)
    }

    /// A block has left its magazine for the allocator.
    pub(super) fn unkeep(&self, id: BlockId) {
        self.change(id, IN_MAGAZINE, IDLE);
    }

    /// Changes the state of a block that only this thread may change.
    #[inline]
    fn change(&self, id: BlockId, from: u64, to: u64) -> u32 {
        let lease = self.at(id);
        let word = lease.word.load(Ordering::Relaxed);
        debug_assert_eq!(word & STATE, from);
        lease.word.store(word & !STATE | to, Ordering::Release);
        generation_of(word)
    }

    /// Whether a caller holds the block by this handle.
    pub(super) fn holds(&self, handle: BlockHandle) -> bool {
        self.get(handle.id())
            .is_some_and(|lease| is_held(lease.word.load(Ordering::Acquire), handle))
    }

    /// Notes that other streams use the block, so that no magazine takes it. False if no caller holds it by this handle.
    pub(super) fn share(&self, handle: BlockHandle) -> bool {
        self.update(handle, |word| Some(word & !STATE | SHARED))
            .is_some()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn handle(generation: u32, id: BlockId) -> BlockHandle {
        BlockHandle::new(0, generation, id)
    }

    #[test]
    fn slots_fill_the_chunks_without_a_gap() {
        let mut expected = (0, 0);
        for id in 0..20_000 {
            assert_eq!(place(id), expected, "slot {id}");
            expected.1 += 1;
            if expected.1 == FIRST << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
        assert!(place(BlockId::MAX - 1).0 < CHUNKS);
    }

    #[test]
    fn a_lease_ends_once() {
        let leases = Leases::default();
        let generation = leases.grant(5, 512, Wanted::new(3, 100));
        let held = handle(generation, 5);
        assert!(leases.holds(held) && !leases.holds(handle(generation + 1, 5)));
        assert!(!leases.holds(handle(0, 6)) && !leases.holds(handle(0, 1 << 20)));
        let cached = leases.keep(held).expect("a magazine may have it");
        assert_eq!((cached.id, cached.address), (5, 512));
        assert_eq!(Some(cached.wanted), Wanted::new(3, 100));
        assert!(!leases.holds(held) && !leases.end(held) && leases.keep(held).is_none());
        let again = handle(leases.grant_again(5), 5);
        assert_ne!(again, held);
        assert!(!leases.end(held) && leases.end(again) && !leases.end(again));
    }

    #[test]
    fn what_other_streams_use_is_not_kept() {
        let leases = Leases::default();
        let held = handle(leases.grant(0, 512, Wanted::new(0, 8)), 0);
        assert!(leases.share(held) && leases.share(held));
        assert!(leases.keep(held).is_none());
        assert!(leases.end(held) && !leases.share(held));
    }

    #[test]
    fn large_blocks_are_not_kept() {
        assert_eq!(Wanted::new(0, 1 << NBYTES_BITS), None);
        let leases = Leases::default();
        let held = handle(leases.grant(0, 512, None), 0);
        assert!(leases.keep(held).is_none() && leases.end(held));
    }

    #[test]
    fn generations_wrap() {
        let leases = Leases::default();
        let mut last = None;
        for _ in 0..=BlockHandle::GENERATION_MASK {
            let held = handle(leases.grant(0, 512, Wanted::new(1, 7)), 0);
            assert_ne!(last, Some(held));
            assert_eq!(
                leases.keep(held).map(|cached| cached.wanted),
                Wanted::new(1, 7)
            );
            leases.unkeep(0);
            last = Some(held);
        }
        assert!(leases.holds(handle(leases.grant(0, 512, None), 0)));
    }
}
