//! Names, interning and registration.

use super::*;
use crate::ErrorKind;
use crate::vendors::{self, Settings};

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
    assert!(
        repeated
            .expect_err("twice")
            .message()
            .contains("`aten::bmm` already")
    );
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

/// A router whose configuration may name the vendors of this build, and the one that a manifest in `folder` tells of.
fn with_a_manifest(folder: &std::path::Path, vars: &[(&str, &str)]) -> Router {
    let manifest = "name = 'acme'\nlibrary = 'lib.so'\ninterface = '1.0'\naliases = ['chip']\n";
    std::fs::write(folder.join("acme.toml"), manifest).expect("own folder");
    let mut vars: Vec<_> = vars
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect();
    let folder = folder.to_str().expect("UTF-8").to_owned();
    vars.push(("FLAGOS_VENDOR_PATH".into(), folder));
    let files: BTreeMap<PathBuf, String> = BTreeMap::new();
    let router = Router::with_vendors(
        move || Env::from_pairs(vars.iter().cloned()),
        files,
        |vendor_path| {
            let settings = Settings {
                vendor_path: vendor_path.to_owned(),
                ..Settings::default()
            };
            vendors::names(&settings).map(Arc::new)
        },
    );
    for vendor in ["acme", "cuda"] {
        let native = Implementation::new(&format!("{vendor}.native"), Kind::Vendor, vendor);
        let registered = router.register("mm", native.vendor(vendor));
        registered.expect("a fresh implementation");
    }
    router
}

fn winner(router: &Router) -> Option<String> {
    router.explain("mm").expect("a known operator").winner
}

#[test]
fn a_vendor_that_a_manifest_tells_of_is_named_in_configuration() {
    let folder = tempfile::tempdir().expect("a folder");
    for route in ["vendor:chip", "vendor:acme", "chip", "acme"] {
        let router = with_a_manifest(folder.path(), &[("FLAGOS_OP_mm", route)]);
        assert_eq!(winner(&router).as_deref(), Some("acme.native"), "{route}");
    }
    let router = with_a_manifest(folder.path(), &[("FLAGOS_VENDOR", "chip")]);
    assert_eq!(winner(&router).as_deref(), Some("acme.native"));
    let router = with_a_manifest(folder.path(), &[]);
    router
        .set_route("mm", "vendor:nvidia|chip", "test")
        .expect("valid");
    assert_eq!(winner(&router).as_deref(), Some("cuda.native"));
}

#[test]
fn a_wrong_name_of_a_vendor_is_told_with_the_nearest_one() {
    let folder = tempfile::tempdir().expect("a folder");
    for (route, hint) in [
        ("vendor:amce", "did you mean `acme`?"),
        ("vendor:chp", "did you mean `chip`?"),
        ("vendor:nvida", "did you mean `nvidia`?"),
        ("amce", "did you mean `acme`?"),
        ("entirely_unrelated", "or a vendor (acme, cuda, host)"),
    ] {
        let router = with_a_manifest(folder.path(), &[("FLAGOS_OP_mm", route)]);
        let error = router.resolve().expect_err(route);
        assert!(
            error.hint().is_some_and(|text| text.ends_with(hint)),
            "{error}"
        );
        let router = with_a_manifest(folder.path(), &[]);
        router.resolve().expect("valid");
        let error = router.set_route("mm", route, "test").expect_err(route);
        assert!(
            error.hint().is_some_and(|text| text.ends_with(hint)),
            "{error}"
        );
    }
}

#[test]
fn a_place_of_manifests_that_does_not_exist_is_told_where_the_configuration_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let router = with_a_manifest(folder.path(), &[]);
    std::fs::remove_file(folder.path().join("acme.toml")).expect("own folder");
    std::fs::remove_dir(folder.path()).expect("own folder");
    let error = router.config().expect_err("no such place");
    assert!(error.to_string().contains("does not exist"), "{error}");
}
