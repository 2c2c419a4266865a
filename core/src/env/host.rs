//! The settings of the host vendor, from the `[host]` table and from the environment.

use super::value::bad_value;
use super::{
    Env, HOST_DELAY_US, HOST_DEVICES, HOST_FAULT, HOST_MEMORY, HOST_SEED, LOCAL_WORLD_SIZE,
};
use crate::Result;
use crate::nearest;

/// A kind of call into which a failure can be injected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultSite {
    /// A memory allocation.
    Alloc,
    /// A queued copy.
    Copy,
    /// A queued host function.
    Launch,
    /// Recording an event.
    Event,
}

impl FaultSite {
    /// Every site.
    pub const ALL: [Self; 4] = [Self::Alloc, Self::Copy, Self::Launch, Self::Event];

    /// The name used in configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Alloc => "alloc",
            Self::Copy => "copy",
            Self::Launch => "launch",
            Self::Event => "event",
        }
    }
}

/// Settings of the host vendor. `None` leaves the choice to the vendor.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostSettings {
    /// The number of devices (default: one for each rank that a launcher starts here, else 1).
    pub devices: Option<u32>,
    /// Bytes of memory of each device (default: what the machine allows).
    pub memory: Option<u64>,
    /// Seed of delays and faults (default 0).
    pub seed: Option<u64>,
    /// The longest random delay before each queued item, in microseconds (default 0).
    pub delay_us: Option<u64>,
    /// Probability of failure per call, by site, each site at most once; empty means none.
    pub faults: Vec<(FaultSite, f64)>,
}

impl HostSettings {
    /// The settings of the environment alone.
    pub fn from_env(env: &Env) -> Result<Self> {
        let mut settings = Self::default();
        settings.overlay_env(env)?;
        Ok(settings)
    }

    /// Replaces every setting that the environment has. A launcher's `LOCAL_WORLD_SIZE` is the number of devices if nothing
    /// else says one.
    pub fn overlay_env(&mut self, env: &Env) -> Result<()> {
        if let Some(devices) = env.count(&HOST_DEVICES)? {
            self.devices = Some(
                valid_devices(devices)
                    .map_err(|hint| bad_value(&HOST_DEVICES, &devices.to_string(), hint))?,
            );
        }
        // The launcher's variable, and not ours: another value than a number of devices says nothing about them.
        let ranks = env
            .get(LOCAL_WORLD_SIZE.name)
            .and_then(|text| text.trim().parse().ok());
        self.devices = self.devices.or_else(|| valid_devices(ranks?).ok());
        overlay(&mut self.memory, env.bytes(&HOST_MEMORY)?);
        overlay(&mut self.seed, env.count(&HOST_SEED)?);
        overlay(&mut self.delay_us, env.count(&HOST_DELAY_US)?);
        if let Some(text) = env.get(HOST_FAULT.name) {
            self.faults = parse_faults(text).map_err(|hint| bad_value(&HOST_FAULT, text, &hint))?;
        }
        Ok(())
    }

    /// The probability of an injected failure at `site`, 0 when none is set.
    #[must_use]
    pub fn fault(&self, site: FaultSite) -> f64 {
        let found = self.faults.iter().find(|(at, _)| *at == site);
        found.map_or(0.0, |(_, probability)| *probability)
    }
}

fn overlay<T>(slot: &mut Option<T>, value: Option<T>) {
    if value.is_some() {
        *slot = value;
    }
}

/// Checks a number of devices: torch must be able to index them with an `int8`.
pub(crate) fn valid_devices(devices: u64) -> Result<u32, &'static str> {
    match u32::try_from(devices) {
        Ok(count) if (1..=127).contains(&count) => Ok(count),
        _ => Err("use a number from 1 to 127"),
    }
}

/// Reads `alloc=0.01,copy=0.001`. The error is a hint to the user.
pub(crate) fn parse_faults(text: &str) -> Result<Vec<(FaultSite, f64)>, String> {
    let mut faults: Vec<(FaultSite, f64)> = Vec::new();
    for item in text
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
    {
        let Some((name, probability)) = item.split_once('=') else {
            return Err(format!("write `{item}` as `site=probability`"));
        };
        let name = name.trim();
        let Some(site) = FaultSite::ALL
            .into_iter()
            .find(|site| site.as_str() == name)
        else {
            let sites = FaultSite::ALL.map(FaultSite::as_str);
            let near = nearest::hint(name, sites);
            return Err(near.unwrap_or_else(|| format!("the sites are {}", sites.join(", "))));
        };
        if faults.iter().any(|(seen, _)| *seen == site) {
            return Err(format!("give `{name}` once"));
        }
        match probability.trim().parse::<f64>() {
            Ok(p) if (0.0..=1.0).contains(&p) => faults.push((site, p)),
            _ => return Err(format!("the probability of `{name}` must be from 0 to 1")),
        }
    }
    Ok(faults)
}
