//! Injected delays and failures, decided by a seed.
//!
//! A decision is a hash of the seed, of the place of the call, and of the number of earlier calls there.
//! So the same program with the same seed meets the same delays and failures, whatever its threads do.

use std::time::Duration;

use crate::env::{FaultSite, HostSettings};

/// The delays and failures to inject.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Chaos {
    seed: u64,
    delay_us: u64,
    faults: [f64; FaultSite::ALL.len()],
}

impl Chaos {
    pub(super) fn new(settings: &HostSettings) -> Self {
        Self {
            seed: settings.seed.unwrap_or(0),
            delay_us: settings.delay_us.unwrap_or(0),
            faults: FaultSite::ALL.map(|site| settings.fault(site)),
        }
    }

    /// The delay before item number `count` of a stream.
    #[inline]
    pub(super) fn delay(&self, lane: u64, count: u64) -> Option<Duration> {
        if self.delay_us == 0 {
            return None;
        }
        let random = self.hash(u64::MAX, lane, count);
        Some(Duration::from_micros(
            random % self.delay_us.saturating_add(1),
        ))
    }

    /// Whether call number `count` of `site` on `lane` fails.
    #[inline]
    pub(super) fn fails(&self, site: FaultSite, lane: u64, count: u64) -> bool {
        let probability = self.faults[site as usize];
        if probability <= 0.0 {
            return false;
        }
        // 53 random bits: a float in [0, 1).
        let random = (self.hash(site as u64, lane, count) >> 11) as f64 / (1_u64 << 53) as f64;
        random < probability
    }

    fn hash(&self, site: u64, lane: u64, count: u64) -> u64 {
        [site, lane, count]
            .into_iter()
            .fold(mix(self.seed), |hash, part| mix(hash ^ part))
    }
}

/// One step of SplitMix64 (Steele, Lea, Flood 2014).
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chaos(seed: u64) -> Chaos {
        Chaos::new(&HostSettings {
            seed: Some(seed),
            delay_us: Some(100),
            faults: vec![(FaultSite::Copy, 0.25)],
            ..HostSettings::default()
        })
    }

    #[test]
    fn the_seed_decides() {
        let run = |seed| {
            let chaos = chaos(seed);
            let decide = move |n| (chaos.delay(1, n), chaos.fails(FaultSite::Copy, 1, n));
            (0..100).map(decide).collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn probabilities_and_bounds_hold() {
        let chaos = chaos(3);
        let failures = (0..10_000)
            .filter(|&n| chaos.fails(FaultSite::Copy, 0, n))
            .count();
        assert!((2_300..2_700).contains(&failures), "{failures}");
        assert!((0..1000).all(|n| chaos.delay(0, n) <= Some(Duration::from_micros(100))));
        assert!(!(0..1000).any(|n| chaos.fails(FaultSite::Alloc, 0, n)));
        assert_eq!(Chaos::default().delay(0, 0), None);
    }

    #[test]
    fn certainty_is_certain() {
        let settings = HostSettings {
            faults: vec![(FaultSite::Alloc, 1.0)],
            ..Default::default()
        };
        let chaos = Chaos::new(&settings);
        assert!((0..1000).all(|n| chaos.fails(FaultSite::Alloc, 0, n)));
    }
}
