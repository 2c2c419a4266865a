//! Names, interning and registration.

use super::*;
use crate::ErrorKind;

#[test]
fn names_are_split_and_qualified() {
    let name = OpName::parse("add.Tensor_out").expect("valid");
    assert_eq!(
        (name.namespace, name.base, name.overload),
        ("aten", "add", "Tensor_out")
    );
    let name = OpName::parse("te::rmsnorm_fwd").expect("valid");
    assert_eq!(
        (name.namespace, name.base, name.overload),
        ("te", "rmsnorm_fwd", "")
    );
    let name = OpName::parse("aten::__and__.Tensor").expect("valid");
    assert_eq!(name.to_string(), "aten::__and__.Tensor");
    for bad in [
        "", "::mm", "aten::", "mm.", ".mm", "a b", "a::b::c", "mm..out", "é",
    ] {
        let error = OpName::parse(bad).expect_err("not a name");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{bad:?}");
    }
}

#[test]
fn a_name_is_interned_once_with_or_without_its_namespace() {
    let mut registry = Registry::new();
    let id = registry.intern("mm").expect("valid");
    assert_eq!(registry.intern("aten::mm").expect("valid"), id);
    assert_eq!(registry.id("mm"), Some(id));
    assert_eq!(registry.id("te::mm"), None);
    assert_eq!(registry.len(), 1);
    assert_eq!(&*registry.op(id).name, "aten::mm");
}

#[test]
fn a_copy_shares_the_slots() {
    let mut registry = Registry::new();
    let id = registry.intern("mm").expect("valid");
    let slot = registry.clone().op(id).slot;
    assert!(std::ptr::eq(slot, registry.op(id).slot));
    assert_eq!(std::ptr::from_ref(slot) as usize % 64, 0);
}

#[test]
fn an_unknown_operator_is_suggested() {
    let bench = Bench::new();
    let cases = [
        ("aten::mn", "did you mean `aten::mm`?"),
        (
            "add",
            "its overloads are `aten::add.Scalar`, `aten::add.Tensor`",
        ),
        ("te::mm", "did you mean `aten::mm`?"),
        ("entirely_unrelated", "`flagos ops` lists the known ones"),
    ];
    for (name, hint) in cases {
        let error = bench.router.registry().require(name).expect_err("unknown");
        assert_eq!(error.hint(), Some(hint), "{name}");
    }
}

#[test]
fn the_same_implementation_twice_is_an_error() {
    let bench = Bench::new();
    let native = Implementation::new("cpu.native", Kind::Vendor, "cpu");
    let error = bench
        .router
        .register("mm", native.clone())
        .expect_err("twice");
    assert_eq!(
        error.to_string(),
        "register: `aten::mm` already has an implementation `cpu.native`; \
         unregister it first, or choose another id"
    );
    // A bulk registration registers all names or none, so that `bmm` is not registered.
    let names = ["bmm", "mm"];
    let bulk = bench.router.register_all("aten", names, native.clone());
    assert_eq!(bulk.expect_err("twice").to_string(), error.to_string());
    let repeated = bench
        .router
        .register_all("aten", ["bmm", "bmm"], native.clone());
    assert!(repeated
        .expect_err("twice")
        .message()
        .contains("`aten::bmm` already"));
    assert!(bench.router.register("bmm", native).is_ok());
}

#[test]
fn names_must_be_writable_in_configuration() {
    let bench = Bench::empty();
    for implementation in [
        Implementation::new("my fast one", Kind::Flagos, "flagos"),
        Implementation::new("x", Kind::Flagos, "a|b"),
        Implementation::new("x", Kind::Flagos, "flagos").vendor(""),
    ] {
        let error = bench
            .router
            .register("mm", implementation)
            .expect_err("not writable");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
}

#[test]
fn what_is_not_registered_cannot_be_withdrawn() {
    let bench = Bench::new();
    let error = bench
        .router
        .unregister("mm", "cpu.nativ")
        .expect_err("unknown");
    assert_eq!(error.hint(), Some("did you mean `cpu.native`?"));
    assert!(bench.router.unregister("bmm", "cpu.native").is_err());
}

#[test]
fn operators_are_listed_by_prefix() {
    let bench = Bench::new();
    let names = bench.router.ops("aten::add");
    assert_eq!(
        names.iter().map(|n| &**n).collect::<Vec<_>>(),
        ["aten::add.Scalar", "aten::add.Tensor"]
    );
}
