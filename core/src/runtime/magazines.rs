//! Freed blocks that threads keep for themselves: an allocation and its free without the lock of the device.
//!
//! A magazine has a few small blocks that its thread freed last, for requests of the same stream and size. The device's
//! books go on counting a kept block as allocated, so nothing changes there when it is freed and used again. They stay
//! exact because whoever looks at them, needs memory from the vendor, or is about to raise a peak, takes all kept blocks
//! back first ([`Magazines::collect`]).

use super::block::BlockId;
use super::leases::{CachedBlock, Wanted};
use super::sync::{AtomicU64, Mutex, Ordering, thread_number};

/// Threads beyond this number share magazines.
const MAGAZINES: usize = if cfg!(loom) { 2 } else { 32 };
/// Blocks in a magazine.
const ROOM: usize = 16;

/// Reuses of kept blocks since the books were last brought up to date.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reuses {
    pub(super) count: usize,
    /// Bytes of the blocks.
    pub(super) bytes: usize,
    /// Bytes asked for.
    pub(super) requested: usize,
}

#[derive(Debug, Default)]
struct Contents {
    /// The one freed last comes last.
    cached: Vec<CachedBlock>,
    reuses: Reuses,
}

/// The magazine of a thread, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Magazine {
    /// Whether the books are behind.
    behind: AtomicU64,
    contents: Mutex<Contents>,
}

impl Magazine {
    /// Whether the books are behind.
    #[inline]
    fn is_behind(&self) -> bool {
        self.behind.load(Ordering::Relaxed) != 0
    }

    /// A kept block for the request, whose blocks have `size` bytes.
    #[inline]
    pub(super) fn take(&self, wanted: Wanted, size: usize) -> Option<CachedBlock> {
        if !self.is_behind() {
            return None; // nothing was put into it
        }
        let mut contents = self.contents.lock();
        let at = contents
            .cached
            .iter()
            .rposition(|cached| cached.wanted == wanted)?;
        let cached = contents.cached.remove(at);
        contents.reuses.count += 1;
        contents.reuses.bytes += size;
        contents.reuses.requested += wanted.nbytes();
        Some(cached)
    }

    /// Keeps a block. The block that has to make room for it is the device's.
    #[inline]
    fn put(&self, cached: CachedBlock) -> Option<CachedBlock> {
        let mut contents = self.contents.lock();
        let oldest = (contents.cached.len() == ROOM).then(|| contents.cached.remove(0));
        contents.cached.push(cached);
        self.behind.store(1, Ordering::Relaxed);
        oldest
    }

    /// Empties the magazine.
    fn collect(&self, mut settle: impl FnMut(BlockId)) -> Reuses {
        let mut contents = self.contents.lock();
        self.behind.store(0, Ordering::Relaxed);
        contents
            .cached
            .drain(..)
            .for_each(|cached| settle(cached.id));
        std::mem::take(&mut contents.reuses)
    }
}

/// The magazines of one device.
#[derive(Debug)]
pub(super) struct Magazines {
    all: Box<[Magazine]>,
    /// Whether the books may be behind.
    behind: AtomicU64,
}

impl Magazines {
    pub(super) fn new() -> Self {
        Self {
            all: (0..MAGAZINES).map(|_| Magazine::default()).collect(),
            behind: AtomicU64::new(0),
        }
    }

    /// The magazine of this thread.
    #[inline]
    pub(super) fn mine(&self) -> &Magazine {
        &self.all[thread_number() % MAGAZINES]
    }

    /// Keeps a block in the magazine of this thread. The block that has to make room for it is the device's.
    #[inline]
    pub(super) fn put(&self, cached: CachedBlock) -> Option<CachedBlock> {
        let oldest = self.mine().put(cached);
        if self.behind.load(Ordering::Relaxed) == 0 {
            self.behind.store(1, Ordering::Release);
        }
        oldest
    }

    /// Whether the books may be behind.
    #[inline]
    pub(super) fn are_behind(&self) -> bool {
        self.behind.load(Ordering::Acquire) != 0
    }

    /// Empties all magazines: `settle` gets the blocks. To be called with the device's lock held.
    #[cold]
    pub(super) fn collect(&self, mut settle: impl FnMut(BlockId)) -> Reuses {
        // Before the magazines are looked at: who puts a block into one afterwards says so again.
        self.behind.store(0, Ordering::Release);
        let mut reuses = Reuses::default();
        for magazine in self.all.iter().filter(|one| one.is_behind()) {
            let of_one = magazine.collect(&mut settle);
            reuses.count += of_one.count;
            reuses.bytes += of_one.bytes;
            reuses.requested += of_one.requested;
        }
        reuses
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn cached(id: BlockId, nbytes: usize) -> CachedBlock {
        let wanted = Wanted::new(0, nbytes).expect("small");
        CachedBlock {
            id,
            address: id as usize * 512,
            wanted,
        }
    }

    #[test]
    fn the_last_one_freed_comes_first() {
        let magazines = Magazines::new();
        for (id, nbytes) in [(1, 8), (2, 8), (3, 600)] {
            assert_eq!(magazines.put(cached(id, nbytes)), None);
        }
        let mine = magazines.mine();
        let wanted = Wanted::new(0, 8).expect("small");
        assert_eq!(mine.take(wanted, 512), Some(cached(2, 8)));
        assert_eq!(mine.take(wanted, 512), Some(cached(1, 8)));
        assert_eq!(mine.take(wanted, 512), None);
        assert_eq!(mine.take(Wanted::new(1, 600).expect("small"), 1024), None);
        let mut settled = Vec::new();
        let reuses = magazines.collect(|id| settled.push(id));
        assert_eq!(settled, [3]);
        assert_eq!(
            (reuses.count, reuses.bytes, reuses.requested),
            (2, 1024, 16)
        );
        assert!(!magazines.are_behind());
        assert_eq!(magazines.collect(|_| unreachable!()), Reuses::default());
    }

    #[test]
    fn the_oldest_makes_room() {
        let magazines = Magazines::new();
        let room = ROOM as BlockId;
        (0..room).for_each(|id| assert_eq!(magazines.put(cached(id, 8)), None));
        assert_eq!(magazines.put(cached(room, 8)), Some(cached(0, 8)));
        assert!(magazines.are_behind());
    }
}
