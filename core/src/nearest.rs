//! The nearest valid name for a name that is not valid.

/// The longest name that is compared, in bytes. The limit bounds the time, which grows with the product of
/// the lengths.
const LONGEST: usize = 256;

/// The valid name most like `name`; `None` when no name is similar enough to suggest.
pub(crate) fn nearest<'a>(name: &str, valid: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > LONGEST {
        return None;
    }
    let wanted = name.to_ascii_lowercase();
    // A third of the letters may differ, and at least one: enough for a typo, too little for another word.
    let allowed = (wanted.chars().count() / 3).max(1);
    let mut best: Option<(usize, &str)> = None;
    for other in valid {
        if other.len().abs_diff(wanted.len()) > allowed * 4 {
            continue;
        }
        let distance = strsim::osa_distance(&wanted, &other.to_ascii_lowercase());
        // Ties go to the first in alphabetical order, so that messages are reproducible.
        let better = match best {
            None => true,
            Some((so_far, name)) => (distance, other) < (so_far, name),
        };
        if distance <= allowed && better {
            best = Some((distance, other));
        }
    }
    best.map(|(_, name)| name)
}

/// The hint "did you mean `...`?", if a name is similar enough.
pub(crate) fn hint<'a>(name: &str, valid: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(name, valid).map(|near| format!("did you mean `{near}`?"))
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn suggests_the_closest_name_and_nothing_far_off() {
        let names = [
            "aten::mm",
            "aten::bmm",
            "aten::add.Tensor",
            "aten::sub.Tensor",
        ];
        let cases = [
            ("aten::mn", Some("aten::mm")),
            ("aten::add.Tensr", Some("aten::add.Tensor")),
            ("ATEN::BMM", Some("aten::bmm")),
            ("entirely_unrelated", None),
        ];
        for (name, expected) in cases {
            assert_eq!(nearest(name, names), expected, "{name}");
        }
    }

    #[test]
    fn equal_distances_are_settled_alphabetically() {
        assert_eq!(nearest("cpx", ["cpz", "cpu"]), Some("cpu"));
    }
}
