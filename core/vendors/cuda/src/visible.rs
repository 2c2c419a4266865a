//! `CUDA_VISIBLE_DEVICES`: which of a machine's devices a process sees.
//!
//! The driver reads the variable when it is initialised. To know the outcome without initialising it, this
//! module reads the text as the driver and `torch.cuda._device_count_nvml` do.

/// The variable.
pub(super) const VARIABLE: &str = "CUDA_VISIBLE_DEVICES";

/// The devices that the text names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Visible {
    /// Every device: the variable is not set.
    All,
    /// Devices by number.
    Ordinals(Vec<u64>),
    /// Devices by the beginning of their UUID (`GPU-...`).
    Uuids(Vec<String>),
    /// Slices of devices (`MIG-...`), which only the driver can look up.
    Slices(Vec<String>),
    /// No device, because the text names this one twice.
    Twice(String),
}

impl Visible {
    /// Reads the variable. No text is an error: the first item that cannot be read ends the list.
    pub(super) fn parse(text: Option<&str>) -> Self {
        let Some(text) = text else { return Self::All };
        let named = |prefix| unique(text.split(',').take_while(|name| name.starts_with(prefix)));
        let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
        if text.starts_with("GPU-") {
            return named("GPU-").map_or_else(|| twice(text), |names| Self::Uuids(owned(names)));
        }
        if text.starts_with("MIG-") {
            return named("MIG-").map_or_else(|| twice(text), |names| Self::Slices(owned(names)));
        }
        let numbers = text.split(',').map_while(|item| ordinal(item.trim()));
        unique(numbers).map_or_else(|| twice(text), Self::Ordinals)
    }

    /// The devices that the process sees, as indices into `uuids`, the UUIDs of the machine's devices (an empty
    /// text for an unknown one). The error says why it sees none.
    pub(super) fn among(&self, uuids: &[&str]) -> Result<Vec<usize>, String> {
        let count = uuids.len();
        let seen: Vec<usize> = match self {
            Self::All => (0..count).collect(),
            Self::Ordinals(ordinals) => {
                let known = |&ordinal: &u64| usize::try_from(ordinal).ok().filter(|at| *at < count);
                ordinals.iter().map_while(known).collect()
            }
            Self::Uuids(names) => {
                let seen: Vec<_> = names.iter().map_while(|name| find(name, uuids)).collect();
                let Some(seen) = unique(seen.into_iter()) else {
                    return Err("it names a device twice".into());
                };
                seen
            }
            // The driver shows a process one slice, however many are named.
            Self::Slices(names) => (0..count.min(names.len()).min(1)).collect(),
            Self::Twice(name) => return Err(format!("it names {name} twice")),
        };
        if seen.is_empty() {
            return Err(format!("it names none of this machine's {count}"));
        }
        Ok(seen)
    }
}

fn twice(text: &str) -> Visible {
    let mut seen: Vec<&str> = Vec::new();
    for item in text.split(',') {
        if seen.contains(&item) {
            return Visible::Twice(item.trim().to_owned());
        }
        seen.push(item);
    }
    // The text names one number twice, written differently.
    Visible::Twice("a device".into())
}

/// All items, or `None` when one occurs twice.
fn unique<T: PartialEq>(items: impl Iterator<Item = T>) -> Option<Vec<T>> {
    let mut seen = Vec::new();
    for item in items {
        if seen.contains(&item) {
            return None;
        }
        seen.push(item);
    }
    Some(seen)
}

/// The number a text begins with, as C's `strtoul` reads it: `2`, `+2` and `2ampere` are 2. `None`
/// for a negative number and for a text that begins with no number.
fn ordinal(item: &str) -> Option<u64> {
    let item = item.strip_prefix('+').unwrap_or(item);
    let digits = item.bytes().take_while(u8::is_ascii_digit).count();
    // A number too long for 64 bits is beyond every device.
    (digits > 0).then(|| item[..digits].parse().unwrap_or(u64::MAX))
}

/// The one device whose UUID begins with `name`.
fn find(name: &str, uuids: &[&str]) -> Option<usize> {
    let mut matching = (0..uuids.len()).filter(|&at| uuids[at].starts_with(name));
    let found = matching.next()?;
    matching.next().is_none().then_some(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UUIDS: [&str; 4] = ["GPU-aa1", "GPU-aa2", "GPU-b", "GPU-c"];

    fn seen(text: &str) -> Vec<usize> {
        Visible::parse(Some(text)).among(&UUIDS).unwrap_or_default()
    }

    #[test]
    fn texts_are_read_as_torch_and_the_driver_read_them() {
        let none: [usize; 0] = [];
        for (text, devices) in [
            ("0", &[0][..]),
            ("3,1", &[3, 1]),
            (" 2 , 0 ", &[2, 0]),
            ("+1", &[1]),
            ("1gpu2,2ampere", &[1, 2]),
            ("0,-1,2", &[0]),
            ("0,4,1", &[0]),
            ("1,,2", &[1]),
            ("0,99999999999999999999999", &[0]),
            ("GPU-b", &[2]),
            ("GPU-c,GPU-aa2", &[3, 1]),
            ("GPU-b,GPU-none,GPU-c", &[2]),
            ("GPU-b,0", &[2]),
            ("GPU-b,GPU-aa", &[2]),
            ("MIG-GPU-aa1/0/0,MIG-GPU-aa1/1/0", &[0]),
            ("", &none),
            ("-1", &none),
            ("none", &none),
            ("4", &none),
            ("0,0", &none),
            ("1,2,+1", &none),
            ("GPU-aa", &none),
            ("GPU-b,GPU-b", &none),
            ("GPU-aa1,GPU-aa1x", &[0]),
        ] {
            assert_eq!(seen(text), devices, "{text:?}");
        }
        assert_eq!(Visible::parse(None).among(&UUIDS), Ok(vec![0, 1, 2, 3]));
        let both = Visible::parse(Some("GPU-aa1,GPU-aa")).among(&["GPU-aa1"]);
        assert!(both.is_err(), "two names of one device");
    }

    #[test]
    fn what_hides_everything_is_said() {
        let reason = |text| {
            Visible::parse(Some(text))
                .among(&UUIDS)
                .expect_err("none is seen")
        };
        assert_eq!(reason("1,0,1"), "it names 1 twice");
        assert_eq!(reason("-1"), "it names none of this machine's 4");
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(text in ".{0,40}", count in 0_usize..5) {
            if let Ok(seen) = Visible::parse(Some(&text)).among(&UUIDS[..count.min(4)]) {
                prop_assert!(!seen.is_empty());
                prop_assert!(seen.iter().all(|&device| device < count));
                let unique: std::collections::BTreeSet<_> = seen.iter().collect();
                prop_assert_eq!(unique.len(), seen.len());
            }
        }

        #[test]
        fn a_list_of_numbers_is_that_list_up_to_the_first_unknown(
            numbers in proptest::collection::vec(-2_i64..8, 1..8),
            count in 1_usize..9,
        ) {
            let text = numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            let uuids = vec![""; count];
            let seen = Visible::parse(Some(&text)).among(&uuids).unwrap_or_default();
            let positive: Vec<_> = numbers.iter().take_while(|n| **n >= 0).collect();
            let twice = (1..positive.len()).any(|at| positive[..at].contains(&positive[at]));
            let model: Vec<usize> = if twice {
                Vec::new()
            } else {
                let known = positive.iter().take_while(|n| (***n as usize) < count);
                known.map(|n| **n as usize).collect()
            };
            prop_assert_eq!(seen, model);
        }
    }
}
