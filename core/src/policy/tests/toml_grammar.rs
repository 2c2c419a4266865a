//! `flagos.toml`.

use super::*;
use crate::env::FaultSite;

const EVERYTHING: &str = r#"
[policy]
order = ["vendor", "flagos", "impl:cpu.reference"]
strict = true
max_cpu_fallback = 1_000
deny_vendors = ["ascend"]
allow_vendors = ["host", "cuda"]
log_dispatch = true
log_fallback = false

[ops]
"aten::mm" = "cpu"
"add.*" = ["cuda", "vendor:metax|cpu"]
"te::x" = "cpu"
"#;

#[test]
fn every_key_is_read_with_its_line() {
    let layer = toml(EVERYTHING).expect("valid").layer;
    let at = |line| Source::file(Path::new("flagos.toml"), line);
    assert_eq!(layer.strict, Some(Sourced::new(true, at(4))));
    assert_eq!(
        layer.max_cpu_fallback,
        Some(Sourced::new(Some(1000), at(5)))
    );
    assert_eq!(
        layer.deny_vendors,
        Some(Sourced::new(vec!["ascend".into()], at(6)))
    );
    assert_eq!(
        layer.allow_vendors,
        Some(Sourced::new(vec!["host".into(), "cuda".into()], at(7)))
    );
    assert_eq!(layer.log_dispatch, Some(Sourced::new(true, at(8))));
    assert_eq!(layer.log_fallback, Some(Sourced::new(false, at(9))));
    let order = layer.order.expect("an order");
    assert_eq!(order.source, at(3));
    assert_eq!(
        print::join(&order.value),
        "vendor|flagos|impl:cpu.reference"
    );
    let routes: Vec<_> = layer
        .ops
        .iter()
        .map(|(p, r)| format!("{p} = {} @ {}", print::join(&r.value), r.source))
        .collect();
    assert_eq!(
        routes,
        [
            "aten::mm = cpu @ flagos.toml:12",
            "aten::add.* = cuda|vendor:metax|cpu @ flagos.toml:13",
            "te::x = cpu @ flagos.toml:14",
        ]
    );
}

#[test]
fn what_turns_itself_on_is_auto_or_off() {
    for (word, on) in [("auto", true), ("off", false)] {
        let text = format!("[policy]\ngraphs = \"{word}\"\nqueue = \"{word}\"\n");
        let layer = toml(&text).expect("valid").layer;
        let at = |line| Source::file(Path::new("flagos.toml"), line);
        assert_eq!(layer.graphs, Some(Sourced::new(on, at(2))));
        assert_eq!(layer.queue, Some(Sourced::new(on, at(3))));
        let again = toml(&print::to_toml(&layer)).expect("valid").layer;
        assert_eq!(again.queue.map(|queue| queue.value), Some(on));
    }
    for wrong in ["\"on\"", "true"] {
        let error = toml(&format!("[policy]\nqueue = {wrong}\n")).expect_err("refused");
        let told = error.to_string();
        assert!(
            told.contains("flagos.toml:2") && told.contains("`queue`"),
            "{told}"
        );
    }
}

#[test]
fn the_host_table_is_read() {
    let text = "[host]\ndevices = 4\nmemory = \"8GiB\"\nseed = 7\ndelay_us = 50\n\
                fault = \"alloc=0.5, copy=1\"\n";
    let host = toml(text).expect("valid").host;
    assert_eq!(host.devices, Some(4));
    assert_eq!(host.memory, Some(8 << 30));
    assert_eq!(host.seed, Some(7));
    assert_eq!(host.delay_us, Some(50));
    assert_eq!(
        host.faults,
        [(FaultSite::Alloc, 0.5), (FaultSite::Copy, 1.0)]
    );
    assert_eq!(host.fault(FaultSite::Launch), 0.0);
    let bytes = toml("host = { memory = 4096 }").expect("valid").host;
    assert_eq!(bytes.memory, Some(4096));
}

#[test]
fn unlimited_is_a_budget() {
    let layer = toml("policy.max_cpu_fallback = \"unlimited\"")
        .expect("valid")
        .layer;
    assert_eq!(layer.max_cpu_fallback.map(|limit| limit.value), Some(None));
}

#[test]
fn includes_are_read_first_and_relative_to_the_file() {
    let files = files([
        (
            "etc/flagos.toml",
            "include = \"site/a.toml\"\n[ops]\nmm = \"cuda\"\n",
        ),
        (
            "etc/site/a.toml",
            "include = [\"b.toml\"]\n[ops]\nmm = \"cpu\"\nbmm = \"cpu\"\n",
        ),
        (
            "etc/site/b.toml",
            "[policy]\nstrict = true\n[host]\ndevices = 3\n",
        ),
    ]);
    let document =
        read_flagos_toml(&files, Path::new("etc/flagos.toml"), &Names::built_in()).expect("valid");
    let routes = document.layer.ops.iter();
    let routes: Vec<_> = routes.map(|(p, r)| format!("{p} {}", r.source)).collect();
    assert_eq!(
        routes,
        [
            "aten::mm etc/site/a.toml:3",
            "aten::bmm etc/site/a.toml:4",
            "aten::mm etc/flagos.toml:3",
        ]
    );
    assert!(document.layer.strict.is_some_and(|strict| strict.value));
    assert_eq!(document.host.devices, Some(3));
}

#[test]
fn errors_name_file_line_and_what_to_write() {
    let cases = [
        "[policy]\norder = \"flagos\"\n\n[polcy]\n",
        "[policy]\nstrct = true",
        "[policy]\nstrict = \"yes\"",
        "[policy]\nmax_cpu_fallback = -1",
        "[policy]\nmax_cpu_fallback = \"lots\"",
        "[policy]\nmax_cpu_fallback = \"unlimited\"\norder = []",
        "[policy]\norder = [\"flagos\", \"vendr\"]",
        "[policy]\norder = [\"flagos\",\n  3]",
        "[policy]\norder = 3",
        "[policy]\ndeny_vendors = [\"a b\"]",
        "policy = 1",
        "[ops]\n\"aten::mm\" = \"cdua\"",
        "[ops]\n\"aten::mm\" = [\"cuda\", \"cuda\"]",
        "[ops]\n\"aten::\" = \"cuda\"",
        "[ops]\nadd.Tensor = \"cpu\"",
        "[ops]\nmm = \"cpu\"\n\"aten::mm\" = \"cuda\"",
        "[ops]\nmm = \"cpu\"\nmm = \"cuda\"",
        "[ops]\naten::mm = \"cpu\"",
        "[ops]\n\"add.Te*\" = \"cpu\"",
        "[ops]\n\"add.out.*\" = \"cpu\"",
        "[ops]\nmm = \"impl:\"",
        "[host]\ndevices = 0",
        "[host]\ndevices = 128",
        "[host]\nmemory = \"8 gibibytes\"",
        "[host]\nfault = \"aloc=0.1\"",
        "[host]\nfault = \"alloc\"",
        "[host]\nfault = \"alloc=2\"",
        "[host]\nfault = \"alloc=0.1,alloc=0.2\"",
        "[host]\nfault = 1",
        "[host]\nsede = 1",
        "include = 1",
        "include = \"nowhere.toml\"",
        "include = \"flagos.toml\"",
        "strict = tru",
    ];
    insta::assert_snapshot!(errors(&cases, toml));
}

#[test]
fn an_include_cycle_is_shown_whole() {
    let files = files([
        ("flagos.toml", "include = \"a.toml\""),
        ("a.toml", "\ninclude = \"./b.toml\""),
        ("b.toml", "include = \"x/../a.toml\""),
    ]);
    let error = read_flagos_toml(&files, Path::new("flagos.toml"), &Names::built_in())
        .expect_err("a cycle");
    assert_eq!(
        error.to_string(),
        "configuration: include cycle: a.toml -> ./b.toml -> ./x/../a.toml \
         (at: ./b.toml:1); remove one of the includes"
    );
}

#[test]
fn a_file_may_be_included_twice_without_a_cycle() {
    let files = files([
        ("flagos.toml", "include = [\"a.toml\", \"b.toml\"]"),
        ("a.toml", "include = \"c.toml\""),
        ("b.toml", "include = \"c.toml\""),
        ("c.toml", "policy.strict = true"),
    ]);
    assert!(read_flagos_toml(&files, Path::new("flagos.toml"), &Names::built_in()).is_ok());
}

#[test]
fn includes_that_multiply_are_stopped() {
    let chain: Vec<_> = (0..40)
        .map(|n| {
            (
                format!("{n}.toml"),
                format!("include = [\"{0}.toml\", \"{0}.toml\"]", n + 1),
            )
        })
        .collect();
    let files = files(
        chain
            .iter()
            .map(|(path, text)| (path.as_str(), text.as_str())),
    );
    let error =
        read_flagos_toml(&files, Path::new("0.toml"), &Names::built_in()).expect_err("too many");
    assert!(
        error.message().starts_with("more than 16 nested"),
        "{error}"
    );
}
