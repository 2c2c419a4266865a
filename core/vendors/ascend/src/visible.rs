//! `ASCEND_RT_VISIBLE_DEVICES`: which of a machine's devices a process sees.
//!
//! The runtime reads the variable when it is initialised. To know the outcome without initialising it, this module reads
//! the text as the runtime does. It is a list of numbers below the number of the machine's devices, in ascending order.
//! The list ends before the first item that is none, such as one with a space in it. A number that repeats an earlier one,
//! or that is smaller, makes the runtime refuse the whole text.

/// The variable.
pub(super) const VARIABLE: &str = "ASCEND_RT_VISIBLE_DEVICES";

/// The devices that a process sees, of `count` of the machine. The error says why it sees none.
pub(super) fn among(text: Option<&str>, count: usize) -> Result<Vec<usize>, String> {
    let Some(text) = text else {
        return Ok((0..count).collect());
    };
    let mut seen: Vec<usize> = Vec::new();
    for item in text.split(',') {
        let digits = !item.is_empty() && item.bytes().all(|byte| byte.is_ascii_digit());
        let number = item.parse().ok().filter(|_| digits);
        let Some(number) = number.filter(|number| *number < count) else {
            break;
        };
        if seen.last().is_some_and(|last| *last >= number) {
            return Err(format!(
                "{VARIABLE}=`{text}` hides every Ascend device: the runtime takes numbers in ascending order alone, each once"
            ));
        }
        seen.push(number);
        if seen.len() == count {
            break;
        }
    }
    if seen.is_empty() {
        return Err(format!(
            "{VARIABLE}=`{text}` hides every Ascend device: the first item is no number below {count}, the number of this \
             machine's devices"
        ));
    }
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_are_read_up_to_the_first_that_names_nothing() {
        let none: [usize; 0] = [];
        for (text, devices) in [
            ("0", &[0][..]),
            ("1,3", &[1, 3]),
            ("1, 2,3", &[1]),
            (" 1", &none),
            ("0,4,1", &[0]),
            ("0,-1,2", &[0]),
            ("0,+1", &[0]),
            ("1,,2", &[1]),
            ("1,x", &[1]),
            ("0,99999999999999999999999", &[0]),
            ("0,1,2,3,3", &[0, 1, 2, 3]),
            ("0,4,0", &[0]),
            ("", &none),
            ("-1", &none),
            ("none", &none),
            ("4", &none),
        ] {
            let seen = among(Some(text), 4).unwrap_or_default();
            assert_eq!(seen, devices, "{text:?}");
        }
        assert_eq!(among(None, 2), Ok(vec![0, 1]));
    }

    #[test]
    fn what_hides_everything_is_said() {
        let said = |text, what: &str| {
            let reason = among(Some(text), 4).expect_err("nothing is seen");
            let begin = format!("ASCEND_RT_VISIBLE_DEVICES=`{text}` hides every Ascend device: ");
            assert!(
                reason.starts_with(&begin) && reason.contains(what),
                "{reason}"
            );
        };
        said("9", "no number below 4");
        said(" 1", "no number below 4");
        for text in ["3,1", "1,1", "0,2,2", "0,1,0"] {
            said(text, "in ascending order alone, each once");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(text in ".{0,40}|[0-5,]{0,12}", count in 0_usize..5) {
            if let Ok(seen) = among(Some(&text), count) {
                prop_assert!(!seen.is_empty() && seen.len() <= count);
                prop_assert!(seen.iter().all(|device| *device < count));
                prop_assert!(seen.windows(2).all(|pair| pair[0] < pair[1]));
            }
        }
    }
}
