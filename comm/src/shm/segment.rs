//! The layout of the memory that the ranks of a group share.
//!
//! ```text
//! header | control block a rank | two windows a rank | a channel for every ordered pair
//! ```
//!
//! The segment is a memory file without a name, which vanishes when its processes end, however they end.
//! Pages that are never used take no memory.

use std::fs::File;
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::flag::Flag;
use crate::error::system;
use crate::{Error, ErrorKind, Result};

/// The number at the beginning of memory with this version's layout.
const MAGIC: u64 = 0x666c_6167_6f73_0001;

/// Windows of a rank: it writes into one while others still read the other.
pub const WINDOWS: usize = 2;

/// Parts of messages that fit into a channel at once.
pub const SLOTS: usize = 4;
/// Bytes of a part.
pub const SLOT_BYTES: usize = 64 << 10;

/// The most bytes of an abort's reason that are passed on.
const REASON_BYTES: usize = 1024;

/// The header of the group.
#[repr(C, align(4096))]
pub struct Header {
    pub magic: AtomicU64,
    /// 0, or 1 + the rank that is about to abort the group.
    pub aborting: AtomicU32,
    /// 0, or 1 + the rank that aborted the group; `reason` is written.
    pub aborted: AtomicU32,
    pub reason_length: AtomicU32,
    pub reason: std::cell::UnsafeCell<[u8; REASON_BYTES]>,
}

/// The control block of a rank. Only the rank itself writes it, apart from `doorbell`.
#[repr(C, align(4096))]
pub struct Control {
    /// The last step this rank has contributed to. It has finished reading all earlier steps.
    pub step: Flag,
    /// Advanced by every rank that puts a message into a channel to this rank.
    pub doorbell: Flag,
    /// 1 when the rank has mapped the memory.
    pub attached: Flag,
    pub pid: AtomicU32,
    /// 1 when the rank has taken leave of the group.
    pub left: AtomicU32,
    /// The kind of the last call that the rank has queued on a device, above the low 56 bits, and 1 more than its number
    /// in them; 0 before the first.
    pub queued: AtomicU64,
    /// The description of the rank's call, for odd and even steps.
    pub call: [std::cell::UnsafeCell<Call>; WINDOWS],
}

/// The description of a rank's call, which the other ranks compare with their own.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Call {
    pub kind: u32,
    pub dtype: u32,
    pub reduce: u32,
    pub root: u32,
    pub count: u64,
    pub sequence: u64,
    /// The bits of the rank's factor, an `f64`.
    pub factor: u64,
    /// The most bytes the rank sends to one rank, for all-to-all.
    pub longest: u64,
}

/// The channel from one rank to another.
#[repr(C, align(64))]
pub struct Channel {
    /// Parts the sender has filled.
    pub filled: Flag,
    /// Parts the receiver has emptied.
    pub emptied: Flag,
    pub parts: [std::cell::UnsafeCell<Part>; SLOTS],
}

/// A part of a message.
#[repr(C, align(64))]
pub struct Part {
    pub tag: i32,
    pub dtype: u32,
    /// Bytes of the whole message.
    pub total: u64,
    pub bytes: [u8; SLOT_BYTES],
}

/// A mapping of the segment.
pub struct Segment {
    address: *mut u8,
    length: usize,
    size: usize,
    window: usize,
}

// SAFETY: the mapping is shared memory; the flags order the accesses of threads and processes to its parts.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

/// The largest window in bytes.
const MOST_WINDOW_BYTES: usize = 1 << 30;

fn length(size: usize, window: usize) -> Result<usize> {
    let bytes = || {
        let rank = WINDOWS
            .checked_mul(window)?
            .checked_add(size_of::<Control>())?;
        let channels = size.checked_mul(size)?.checked_mul(size_of::<Channel>())?;
        size.checked_mul(rank)?
            .checked_add(channels)?
            .checked_add(size_of::<Header>())
    };
    let bytes = bytes().filter(|&bytes| {
        let pages = window != 0 && window % 4096 == 0;
        pages && window <= MOST_WINDOW_BYTES && isize::try_from(bytes).is_ok()
    });
    bytes.ok_or_else(|| {
        Error::new(
            ErrorKind::InvalidArgument,
            format!(
                "windows of {window} bytes for {size} ranks are impossible: FLAGOS_COMM_WINDOW takes multiples of 4096 up \
                 to {MOST_WINDOW_BYTES}"
            ),
        )
    })
}

impl Segment {
    /// Creates the memory of a group of `size` ranks with windows of `window` bytes, a multiple of 4096.
    pub fn create(size: usize, window: usize) -> Result<(Self, File)> {
        // SAFETY: the name is a string; the descriptor is checked and owned from here on.
        let file = unsafe {
            let descriptor = libc::memfd_create(c"flagos-comm".as_ptr(), libc::MFD_CLOEXEC);
            if descriptor < 0 {
                return Err(system("memfd_create"));
            }
            File::from_raw_fd(descriptor)
        };
        file.set_len(length(size, window)? as u64)
            .map_err(|error| Error::new(ErrorKind::System, format!("shared memory: {error}")))?;
        let segment = Self::map(&file, size, window)?;
        segment
            .header()
            .magic
            .store(MAGIC, std::sync::atomic::Ordering::Release);
        Ok((segment, file))
    }

    /// Maps memory that another rank has created.
    pub fn open(file: &File, size: usize, window: usize) -> Result<Self> {
        let found = file.metadata().map_or(0, |data| data.len());
        let expected = length(size, window)?;
        if found != expected as u64 {
            return Err(Error::new(
                ErrorKind::Mismatch,
                format!(
                    "the shared memory has {found} bytes, {expected} are expected: do all ranks run the same flagos?"
                ),
            ));
        }
        let segment = Self::map(file, size, window)?;
        if segment
            .header()
            .magic
            .load(std::sync::atomic::Ordering::Acquire)
            != MAGIC
        {
            return Err(Error::new(
                ErrorKind::Mismatch,
                "the shared memory was laid out by another version of flagos",
            ));
        }
        Ok(segment)
    }

    fn map(file: &File, size: usize, window: usize) -> Result<Self> {
        let length = length(size, window)?;
        // SAFETY: a fresh mapping of a file that is at least this long; checked below.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(system("mmap of shared memory"));
        }
        Ok(Self {
            address: address.cast(),
            length,
            size,
            window,
        })
    }

    /// Bytes of a window.
    pub fn window_bytes(&self) -> usize {
        self.window
    }

    /// The header of the group.
    pub fn header(&self) -> &Header {
        // SAFETY: the mapping starts with it; zeroed memory is a valid one, and all access is atomic or ordered.
        unsafe { &*self.address.cast() }
    }

    /// The control block of `rank`.
    pub fn control(&self, rank: usize) -> &Control {
        assert!(rank < self.size);
        let offset = size_of::<Header>() + rank * size_of::<Control>();
        // SAFETY: in range, aligned to a page; as for `header`.
        unsafe { &*self.address.add(offset).cast() }
    }

    /// The window of `rank` for `step`.
    pub fn window(&self, rank: usize, step: u32) -> *mut u8 {
        assert!(rank < self.size);
        let index = rank * WINDOWS + step as usize % WINDOWS;
        let offset = size_of::<Header>() + self.size * size_of::<Control>() + index * self.window;
        // SAFETY: in range of the mapping.
        unsafe { self.address.add(offset) }
    }

    /// The channel from rank `from` to rank `to`.
    pub fn channel(&self, from: usize, to: usize) -> &Channel {
        assert!(from < self.size && to < self.size);
        let offset = size_of::<Header>()
            + self.size * (size_of::<Control>() + WINDOWS * self.window)
            + (from * self.size + to) * size_of::<Channel>();
        // SAFETY: in range, aligned because all before it is in pages; as for `header`.
        unsafe { &*self.address.add(offset).cast() }
    }

    /// Aborts the group on behalf of `rank`. Only the first abort of a group has an effect.
    pub fn abort(&self, rank: usize, reason: &str) {
        use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
        let header = self.header();
        let mine = rank as u32 + 1;
        if header
            .aborting
            .compare_exchange(0, mine, AcqRel, Acquire)
            .is_err()
        {
            return;
        }
        let mut end = reason.len().min(REASON_BYTES);
        while !reason.is_char_boundary(end) {
            end -= 1;
        }
        // SAFETY: the thread that won the exchange is the only writer, and readers wait for `aborted`.
        unsafe { (&mut *header.reason.get())[..end].copy_from_slice(&reason.as_bytes()[..end]) };
        header.reason_length.store(end as u32, Release);
        header.aborted.store(mine, Release);
        for rank in 0..self.size {
            let control = self.control(rank);
            control.step.wake();
            control.doorbell.wake();
            control.attached.wake();
            for other in 0..self.size {
                self.channel(rank, other).filled.wake();
                self.channel(rank, other).emptied.wake();
            }
        }
    }

    /// The rank that aborted the group, and why.
    pub fn aborted(&self) -> Option<(usize, String)> {
        use std::sync::atomic::Ordering::Acquire;
        let header = self.header();
        let by = header.aborted.load(Acquire).checked_sub(1)? as usize;
        let length = (header.reason_length.load(Acquire) as usize).min(REASON_BYTES);
        // SAFETY: written before `aborted` was, and not again.
        let reason = unsafe { (&*header.reason.get())[..length].to_vec() };
        Some((by, String::from_utf8_lossy(&reason).into_owned()))
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, unmapped once; nothing borrows from it any more.
        unsafe { libc::munmap(self.address.cast(), self.length) };
    }
}
