//! `ASCEND_RT_VISIBLE_DEVICES`: which of a machine's devices a process sees.
//!
//! The runtime reads the variable when it is initialised. To know the outcome without initialising it, this module reads
//! the text as the runtime does: a list of numbers, which ends at the first item that is none, that names no device, or
//! that repeats another.

/// The variable.
pub(super) const VARIABLE: &str = "ASCEND_RT_VISIBLE_DEVICES";

/// The devices that a process sees, among those with these numbers, in the order of the text. The error says why it sees none.
pub(super) fn among(text: Option<&str>, devices: &[u32]) -> Result<Vec<u32>, String> {
    let Some(text) = text else {
        return Ok(devices.to_vec());
    };
    let mut seen = Vec::new();
    for item in text.split(',') {
        // In a container, the driver numbers the devices it was given from 0.
        let number = item.trim().parse::<u32>().ok();
        let known = |n: &u32| devices.contains(n) || (*n as usize) < devices.len();
        match number.filter(known) {
            Some(number) if !seen.contains(&number) => seen.push(number),
            _ => break,
        }
    }
    if seen.is_empty() {
        let count = devices.len();
        return Err(format!(
            "{VARIABLE}=`{text}` hides every Ascend device: it names none of this machine's {count}"
        ));
    }
    seen.truncate(devices.len());
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_are_read_up_to_the_first_that_names_nothing() {
        let none: [u32; 0] = [];
        for (text, devices) in [
            ("0", &[0][..]),
            ("3,1", &[3, 1]),
            (" 2 , 0 ", &[2, 0]),
            ("0,4,1", &[0]),
            ("0,-1,2", &[0]),
            ("1,,2", &[1]),
            ("1,1,2", &[1]),
            ("1,x", &[1]),
            ("", &none),
            ("-1", &none),
            ("none", &none),
            ("4", &none),
        ] {
            let seen = among(Some(text), &[0, 1, 2, 3]).unwrap_or_default();
            assert_eq!(seen, devices, "{text:?}");
        }
        assert_eq!(among(None, &[0, 1]), Ok(vec![0, 1]));
    }

    #[test]
    fn a_container_may_hold_a_device_of_any_number() {
        assert_eq!(among(Some("4"), &[4]), Ok(vec![4]));
        assert_eq!(among(Some("0"), &[4]), Ok(vec![0]));
        assert_eq!(among(Some("4,0"), &[4]), Ok(vec![4]));
    }

    #[test]
    fn what_hides_everything_is_said() {
        assert_eq!(
            among(Some("9"), &[0, 1]),
            Err("ASCEND_RT_VISIBLE_DEVICES=`9` hides every Ascend device: it names none of this machine's 2".into())
        );
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(text in ".{0,40}", count in 0_u32..5) {
            let devices: Vec<u32> = (0..count).collect();
            if let Ok(seen) = among(Some(&text), &devices) {
                prop_assert!(!seen.is_empty());
                prop_assert!(seen.iter().all(|device| devices.contains(device)));
            }
        }
    }
}
