//! Selectors and patterns.

use super::*;

#[test]
fn every_selector_prints_as_it_is_read() {
    let texts = [
        "flagos",
        "vendor",
        "reference",
        "vendor:acme-2",
        "impl:user.my/fast",
        "flaggems",
        "flagos_python",
        "cuda",
        "metax",
        "ascend",
        "cpu",
    ];
    for text in texts {
        let selector = Selector::parse(text, &Names::built_in()).expect("valid");
        assert_eq!(selector.to_string(), text);
    }
}

#[test]
fn flaggems_python_is_flagos_python() {
    let selector = Selector::parse("flaggems_python", &Names::built_in()).expect("valid");
    assert_eq!(selector, Selector::Backend(Backend::FlagosPython));
}

#[test]
fn what_is_not_a_selector_is_refused() {
    for text in ["", "CPU", "vendor:", "impl:a b", "backend:cpu", "cpu,cuda"] {
        assert!(
            Selector::parse(text, &Names::built_in()).is_err(),
            "{text:?}"
        );
    }
}

#[test]
fn legacy_backend_names_select_what_they_meant() {
    let implementation = |kind, backend| Implementation::new("x", kind, backend);
    let gems = implementation(Kind::Flagos, "flaggems");
    let python = implementation(Kind::Flagos, "flagos_python");
    let cpu = implementation(Kind::Reference, "cpu");
    assert!(Backend::FlagGems.matches(&gems) && !Backend::FlagGems.matches(&python));
    assert!(Backend::FlagosPython.matches(&gems) && Backend::FlagosPython.matches(&python));
    assert!(Backend::Cpu.matches(&cpu) && !Backend::Vendor("cuda".into()).matches(&cpu));
}

#[test]
fn patterns_are_qualified() {
    let cases = [
        ("mm", "aten::mm"),
        (" aten::add.Tensor ", "aten::add.Tensor"),
        ("add.*", "aten::add.*"),
        ("te::norm.*", "te::norm.*"),
    ];
    for (text, printed) in cases {
        assert_eq!(OpPattern::parse(text).expect("valid").to_string(), printed);
    }
    for text in ["", "*", "a::b::c", "::mm", "mm.", "a b", "mm..out", "x.y.*"] {
        assert!(OpPattern::parse(text).is_err(), "{text:?}");
    }
}
