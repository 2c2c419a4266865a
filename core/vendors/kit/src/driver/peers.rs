//! Access to the memory of other devices.
//!
//! The first copy between two devices arranges access for the pair, and no earlier call does, because each pair costs
//! memory and a limited resource of the driver. Where access is impossible, copies go through host memory.

use std::sync::atomic::{AtomicU64, Ordering};

use flagos_core::error::Result;

/// What a device knows of its access to others. Bit `n` is about the memory of device `n`.
pub struct Peers {
    /// Access has been arranged, or is impossible.
    asked: AtomicU64,
    /// The memory can be accessed.
    reached: AtomicU64,
    /// One bit for each device of the vendor.
    all: u64,
}

impl Peers {
    /// Those of device `index` of `count`.
    pub fn new(index: usize, count: usize) -> Self {
        let own = 1 << (index % 64);
        Self {
            asked: AtomicU64::new(own),
            reached: AtomicU64::new(own),
            all: bit(count).map_or(u64::MAX, |bit| bit - 1),
        }
    }

    /// Whether access to the memory of some other device has not been looked into yet.
    #[inline]
    pub fn has_new(&self) -> bool {
        self.asked.load(Ordering::Relaxed) & self.all != self.all
    }

    /// Whether `device` can access the memory of `other`. The first question enables it by `enable`, which answers
    /// whether the hardware has a way.
    pub fn reach(
        &self,
        device: usize,
        other: usize,
        enable: impl FnOnce() -> Result<bool>,
    ) -> bool {
        let Some(bit) = bit(other) else {
            return false;
        };
        if self.asked.load(Ordering::Acquire) & bit == 0 {
            match enable() {
                Ok(true) => {
                    tracing::debug!(device, other, "peer access");
                    self.reached.fetch_or(bit, Ordering::Relaxed);
                }
                Ok(false) => tracing::info!(
                    device,
                    other,
                    "no peer access: copies go through host memory"
                ),
                Err(error) => tracing::warn!(
                    device, other, %error,
                    "no peer access: copies go through host memory"
                ),
            }
            self.asked.fetch_or(bit, Ordering::Release);
        }
        self.reached.load(Ordering::Relaxed) & bit != 0
    }
}

fn bit(index: usize) -> Option<u64> {
    1_u64.checked_shl(u32::try_from(index).ok()?)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use flagos_core::error::Error;

    use super::*;

    #[test]
    fn access_is_arranged_once_for_each_device() {
        let peers = Peers::new(1, 4);
        let unasked = || -> Result<bool> { panic!("it was asked before") };
        assert!(peers.has_new());
        assert!(peers.reach(1, 1, unasked), "its own memory");
        assert!(peers.reach(1, 0, || Ok(true)));
        assert!(!peers.reach(1, 2, || Ok(false)));
        assert!(peers.has_new());
        assert!(!peers.reach(1, 3, || Err(Error::device("enable", "broken"))));
        assert!(!peers.has_new());
        let again = [0, 2, 3].map(|other| peers.reach(1, other, unasked));
        assert_eq!(again, [true, false, false]);
        assert!(!peers.reach(1, 64, unasked), "it has no bit");
        assert!(Peers::new(0, 64).has_new());
        assert!(!Peers::new(0, 1).has_new());
    }
}
