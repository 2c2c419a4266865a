//! The layer of the environment, and the reading of variables.

use super::*;
use crate::env::{self, HostSettings};

fn layer<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Layer> {
    environment_layer(&super::env(pairs), &Names::built_in())
}

#[test]
fn every_variable_sets_its_part_of_the_layer() {
    let layer = layer([
        ("FLAGOS_STRICT", "1"),
        ("FLAGOS_MAX_CPU_FALLBACK", "0"),
        ("FLAGOS_LOG_DISPATCH", "on"),
        ("FLAGOS_DISABLE_FLAGGEMS_PY", "true"),
        ("FLAGOS_VENDOR", "host"),
        ("FLAGOS_OP_add__Tensor", "cuda|cpu"),
    ]);
    let layer = layer.expect("valid");
    let by = Source::env;
    assert_eq!(layer.strict, Some(Sourced::new(true, by("FLAGOS_STRICT"))));
    let limit = Sourced::new(Some(0), by("FLAGOS_MAX_CPU_FALLBACK"));
    assert_eq!(layer.max_cpu_fallback, Some(limit));
    assert!(layer.log_dispatch.is_some_and(|log| log.value));
    assert!(layer.disable_flaggems.is_some_and(|disable| disable.value));
    let vendor = Sourced::new("host".into(), by("FLAGOS_VENDOR"));
    assert_eq!(layer.vendor, Some(vendor));
    let (pattern, route) = &layer.ops[0];
    assert_eq!(*pattern, OpPattern::Variable("add__Tensor".to_owned()));
    assert_eq!(route.source, by("FLAGOS_OP_add__Tensor"));
}

#[test]
fn words_of_the_log_turn_on_what_their_variables_do() {
    let words = layer([("FLAGOS_LOG", "info,dispatch,fallback")]).expect("valid");
    let on = Sourced::new(true, Source::env("FLAGOS_LOG"));
    assert_eq!(words.log_dispatch, Some(on.clone()));
    assert_eq!(words.log_fallback, Some(on));
    let both = [("FLAGOS_LOG", "dispatch"), ("FLAGOS_LOG_DISPATCH", "0")];
    let both = layer(both).expect("valid");
    assert!(both.log_dispatch.is_some_and(|log| !log.value));
    assert_eq!(both.log_fallback, None);
}

#[test]
fn an_empty_value_is_not_set() {
    let layer = layer([("FLAGOS_STRICT", ""), ("FLAGOS_OP_mm", "")]).expect("valid");
    assert_eq!(layer, Layer::default());
}

#[test]
fn the_legacy_flaggems_switch_is_the_opposite_of_the_current_one() {
    let disabled = |pairs: &[(&'static str, &'static str)]| {
        let layer = layer(pairs.iter().copied()).expect("valid");
        layer.disable_flaggems.map(|disable| disable.value)
    };
    assert_eq!(disabled(&[("FLAGOS_USE_FLAGGEMS", "0")]), Some(true));
    assert_eq!(disabled(&[("FLAGOS_USE_FLAGGEMS", "1")]), Some(false));
    let both = [
        ("FLAGOS_USE_FLAGGEMS", "1"),
        ("FLAGOS_DISABLE_FLAGGEMS_PY", "1"),
    ];
    assert_eq!(disabled(&both), Some(true));
}

#[test]
fn a_variable_finds_its_operator_by_how_the_name_is_written() {
    let cases = [
        ("FLAGOS_OP_mm", "aten::mm"),
        ("FLAGOS_OP_mm__out", "aten::mm.out"),
        ("FLAGOS_OP_add__Tensor", "aten::add.Tensor"),
        ("FLAGOS_OP_aten__add__Tensor", "aten::add.Tensor"),
        ("FLAGOS_OP___and____Tensor", "aten::__and__.Tensor"),
        ("FLAGOS_OP_te__rmsnorm_fwd", "te::rmsnorm_fwd"),
    ];
    for (variable, op) in cases {
        let layer = layer([(variable, "cpu")]).expect("valid");
        let policy = Policy::from_layers([&cuda(), &layer]);
        let plan = resolve_all(&registry(), &policy).expect("a plan");
        let explicit: Vec<_> = plan.iter().filter(|entry| entry.explicit).collect();
        assert_eq!(explicit.len(), 1, "{variable}");
        assert_eq!(&*explicit[0].op, op);
        assert_eq!(explicit[0].route.source, Source::env(variable));
    }
}

#[test]
fn errors_name_the_variable_and_what_to_write() {
    let cases = [
        "FLAGOS_STRICT=maybe",
        "FLAGOS_LOG_DISPATCH=2",
        "FLAGOS_MAX_CPU_FALLBACK=-1",
        "FLAGOS_DISABLE_FLAGGEMS_PY=x",
        "FLAGOS_USE_FLAGGEMS=x",
        "FLAGOS_VENDOR=a b",
        "FLAGOS_OP_mm=cdua",
        "FLAGOS_OP_=cuda",
        "FLAGOS_OP_add.Tensor=cuda",
        "FLAGOS_STRCIT=1",
        "FLAGOS_OPS_mm=cpu",
        "FLAGOS_ENTIRELY_UNRELATED=1",
        "FLAGOS_HOST_DEVICES=0",
        "FLAGOS_HOST_DEVICES=two",
        "FLAGOS_HOST_MEMORY=8 gibibytes",
        "FLAGOS_HOST_SEED=-1",
        "FLAGOS_HOST_DELAY_US=1.5",
        "FLAGOS_HOST_FAULT=aloc=0.1",
        "FLAGOS_HOST_FAULT=everything",
        "FLAGOS_CONFIG=nowhere.toml",
        "FLAGOS_BACKEND_CONFIG=nowhere.conf",
    ];
    let load = |case: &str| {
        let (name, value) = case.split_once('=').expect("name=value");
        Config::load(
            &super::env([(name, value)]),
            &files([]),
            None,
            &Names::built_in(),
        )
    };
    insta::assert_snapshot!(errors(&cases, load));
}

#[test]
fn names_of_operators_are_checked_once_the_namespace_has_operators() {
    let policy = |variable| {
        let layer = layer([(variable, "cpu")]).expect("valid");
        Policy::from_layers([&layer])
    };
    let plan = resolve_all(&Registry::new(), &policy("FLAGOS_OP_add__Tenosr")).expect("a plan");
    assert_eq!(plan.unmatched().len(), 1);
    let error = resolve_all(&registry(), &policy("FLAGOS_OP_add__Tenosr")).expect_err("unknown");
    assert_eq!(
        error.to_string(),
        "configuration: unknown operator `add.Tenosr` \
         (at: the variable FLAGOS_OP_add__Tenosr); did you mean `aten::add.Tensor`?"
    );
    // The operator's adapter has not been loaded yet.
    let plan = resolve_all(&registry(), &policy("FLAGOS_OP_lightx2v__norm")).expect("a plan");
    assert_eq!(plan.unmatched().len(), 1);
}

#[test]
fn names_without_effect_are_warned_about() {
    let pairs = [
        ("FLAGOS_METAX_COMPAT", "1"),
        ("GEMS_VENDOR", "metax"),
        ("PATH", "/bin"),
    ];
    let warnings = super::env(pairs).check().expect("valid");
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].starts_with("FLAGOS_METAX_COMPAT has no effect"));
}

#[test]
fn a_snapshot_keeps_only_what_is_flagos_business() {
    let env = super::env([("PATH", "/bin"), ("HOME", "/root"), ("FLAGOS_STRICT", "1")]);
    assert_eq!(env.get("PATH"), None);
    assert_eq!(env.get("HOME"), Some("/root"));
    assert_eq!(env.get("FLAGOS_STRICT"), Some("1"));
}

#[test]
fn byte_counts_take_binary_suffixes() {
    let cases = [
        ("0", Some(0)),
        ("4096", Some(4096)),
        ("4k", Some(4 << 10)),
        (" 512MiB ", Some(512 << 20)),
        ("8 GB", Some(8 << 30)),
        ("1T", Some(1 << 40)),
        ("", None),
        ("-1", None),
        ("1.5G", None),
        ("99999999T", None),
    ];
    for (text, expected) in cases {
        assert_eq!(env::parse_bytes(text), expected, "{text:?}");
    }
}

#[test]
fn the_environment_beats_the_host_table() {
    let mut host = HostSettings {
        devices: Some(4),
        seed: Some(1),
        ..HostSettings::default()
    };
    let overlay = super::env([("FLAGOS_HOST_DEVICES", "2"), ("FLAGOS_HOST_MEMORY", "1G")]);
    host.overlay_env(&overlay).expect("valid");
    assert_eq!(
        (host.devices, host.memory, host.seed),
        (Some(2), Some(1 << 30), Some(1))
    );
}

#[test]
fn a_launcher_has_a_host_device_for_each_of_its_processes() {
    let devices = |toml: Option<u32>, pairs: &[(&str, &str)]| {
        let mut host = HostSettings {
            devices: toml,
            ..HostSettings::default()
        };
        host.overlay_env(&super::env(pairs.iter().copied()))
            .expect("valid");
        host.devices
    };
    let launched = ("LOCAL_WORLD_SIZE", "4");
    assert_eq!(devices(None, &[launched]), Some(4));
    assert_eq!(devices(Some(3), &[launched]), Some(3));
    assert_eq!(
        devices(Some(3), &[launched, ("FLAGOS_HOST_DEVICES", "2")]),
        Some(2)
    );
    for other in ["0", "128", "-1", "two", ""] {
        assert_eq!(devices(None, &[("LOCAL_WORLD_SIZE", other)]), None);
    }
}

#[test]
fn families_of_torch_fl_are_told_and_typos_are_errors() {
    let families = [
        ("FLAGOS_DCU_SDPA_FLASH", "DCU"),
        ("FLAGOS_PPU_MKL_DIR", "PPU"),
        ("FLAGOS_PPU_TORCH_LIB", "torch that is installed"),
        ("FLAGOS_TILEOPS_CACHE_MAX", "TileOps"),
        ("FLAGOS_USE_VENDOR_OPS", "order"),
        ("FLAGOS_DISABLE_FLEX_ATTENTION_COMPAT", "FlexAttention"),
    ];
    for (name, instead) in families {
        let warnings = super::env([(name, "1")])
            .check()
            .expect("told, not refused");
        assert_eq!(warnings.len(), 1, "{name}");
        assert!(warnings[0].contains(instead), "{}", warnings[0]);
    }
    for name in [
        "FLAGOS_DCU",
        "FLAGOS_DCU_",
        "FLAGOS_TILEOP_FULL",
        "FLAGOS_USE_VENDOR_OP",
    ] {
        assert!(super::env([(name, "1")]).check().is_err(), "{name}");
    }
}
