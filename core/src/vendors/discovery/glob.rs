//! Patterns of file names: `*`, `?` and `[0-9]`, as shells have them.

/// A part of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// This byte.
    Byte(u8),
    /// Any one byte: `?`.
    One,
    /// Any bytes: `*`.
    Any,
    /// A byte in one of these ranges, or with `true` in none: `[0-9a]`, `[!0-9]`.
    Set(bool, Vec<(u8, u8)>),
}

impl Part {
    fn takes(&self, byte: u8) -> bool {
        match self {
            Self::Byte(known) => byte == *known,
            Self::One | Self::Any => true,
            Self::Set(negated, ranges) => {
                ranges
                    .iter()
                    .any(|(first, last)| (*first..=*last).contains(&byte))
                    != *negated
            }
        }
    }
}

/// A pattern of file names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern(Vec<Part>);

impl Pattern {
    /// Reads a pattern. Fails with what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text.bytes();
        while let Some(byte) = rest.next() {
            parts.push(match byte {
                b'*' => Part::Any,
                b'?' => Part::One,
                b'[' => {
                    let set: Vec<_> = rest.by_ref().take_while(|byte| *byte != b']').collect();
                    if set.len() + 2 > text.len() || !text.contains(']') {
                        return Err(format!("`{text}` has a `[` without `]`"));
                    }
                    Self::set(&set).ok_or_else(|| format!("`{text}` has an empty `[]`"))?
                }
                _ => Part::Byte(byte),
            });
        }
        Ok(Self(parts))
    }

    fn set(text: &[u8]) -> Option<Part> {
        let negated = text.first() == Some(&b'!');
        let mut rest = &text[usize::from(negated)..];
        let mut ranges = Vec::new();
        while let [first, ..] = rest {
            let (range, length) = match rest {
                [_, b'-', last, ..] => ((*first, *last), 3),
                _ => ((*first, *first), 1),
            };
            ranges.push(range);
            rest = &rest[length..];
        }
        (!ranges.is_empty()).then_some(Part::Set(negated, ranges))
    }

    /// Whether a name fits.
    pub(super) fn matches(&self, name: &[u8]) -> bool {
        let parts = &self.0;
        let (mut part, mut at) = (0, 0);
        // After a mismatch the last `*` takes one byte more.
        let mut star: Option<(usize, usize)> = None;
        while at < name.len() {
            match parts.get(part) {
                Some(Part::Any) => {
                    star = Some((part, at));
                    part += 1;
                }
                Some(one) if one.takes(name[at]) => {
                    part += 1;
                    at += 1;
                }
                _ => {
                    let Some((place, taken)) = star else {
                        return false;
                    };
                    star = Some((place, taken + 1));
                    part = place + 1;
                    at = taken + 1;
                }
            }
        }
        parts[part..].iter().all(|part| *part == Part::Any)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_match_as_in_a_shell() {
        for (pattern, fits, fails) in [
            ("chip0", "chip0", "chip01"),
            ("chip[0-9]*", "chip12", "chip_manager"),
            ("chip[!a-z]", "chip7", "chipx"),
            ("c*p?", "chipp0", "chip"),
            ("*", "", "-"),
            ("[-x]", "-", "y"),
        ] {
            let parsed = Pattern::parse(pattern).expect("a pattern");
            assert!(parsed.matches(fits.as_bytes()), "{pattern} {fits}");
            let all = pattern == "*";
            assert_eq!(parsed.matches(fails.as_bytes()), all, "{pattern} {fails}");
        }
        for (pattern, wrong) in [
            ("chip[0-9", "without `]`"),
            ("chip[]", "empty"),
            ("[!]", "empty"),
        ] {
            let error = Pattern::parse(pattern).expect_err("refused");
            assert!(error.contains(wrong), "{error}");
        }
    }

    proptest! {
        #[test]
        fn the_system_agrees(pattern in "[ab*?]{0,6}(\\[!?[a-c](-[a-c])?\\])?[ab*]{0,3}", name in "[abc]{0,8}") {
            let parsed = Pattern::parse(&pattern).expect("a pattern");
            let c = |text: &str| CString::new(text).expect("no NUL");
            let (c_pattern, c_name) = (c(&pattern), c(&name));
            // SAFETY: two C strings.
            let system = unsafe { libc::fnmatch(c_pattern.as_ptr(), c_name.as_ptr(), 0) } == 0;
            prop_assert_eq!(parsed.matches(name.as_bytes()), system, "{} {}", pattern, name);
        }

        #[test]
        fn any_text_is_read(pattern in ".{0,40}", name in ".{0,40}") {
            if let Ok(parsed) = Pattern::parse(&pattern) {
                parsed.matches(name.as_bytes());
            }
        }
    }
}
