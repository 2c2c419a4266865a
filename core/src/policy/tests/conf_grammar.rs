//! `backends.conf`.

use super::*;

fn routes(layer: &Layer) -> Vec<String> {
    let route = |(pattern, route): &(OpPattern, Route)| {
        format!(
            "{pattern} = {} @ {}",
            print::join(&route.value),
            route.source
        )
    };
    layer.ops.iter().map(route).collect()
}

#[test]
fn the_legacy_grammar_is_read() {
    let layer = conf(
        "\u{feff}# routes\r\n\
         mm = cuda   # the overload without a name\r\n\
         \r\n\
         add.Tensor=flaggems\n\
         te::rmsnorm_fwd = flagos | cpu\n\
         softmax.* = flagos_python\n\
         include_last_offset = cpu\n",
    );
    assert_eq!(
        routes(&layer.expect("valid")),
        [
            "aten::mm = cuda @ backends.conf:2",
            "aten::add.Tensor = flaggems @ backends.conf:4",
            "te::rmsnorm_fwd = flagos|cpu @ backends.conf:5",
            "aten::softmax.* = flagos_python @ backends.conf:6",
            "aten::include_last_offset = cpu @ backends.conf:7",
        ]
    );
}

#[test]
fn a_later_line_beats_an_earlier_one() {
    let layer = conf("mm = cuda\nmm = cpu\n").expect("valid");
    let plan = resolve_all(&registry(), &Policy::from_layers([&cuda(), &layer])).expect("a plan");
    assert_eq!(winner(&plan, "mm").as_deref(), Some("cpu.reference"));
}

#[test]
fn a_star_is_every_operator_of_torch_without_a_line_of_its_own() {
    let layer = conf("mm = cuda\n* = cuda\n* = cpu | cuda # the later one\n").expect("valid");
    let plan = resolve_all(&registry(), &Policy::from_layers([&cuda(), &layer])).expect("a plan");
    assert_eq!(winner(&plan, "mm").as_deref(), Some("cuda.native"));
    assert_eq!(
        winner(&plan, "add.Tensor").as_deref(),
        Some("cpu.reference")
    );
    let order = layer.namespaces["aten"].order.as_ref().expect("an order");
    assert_eq!(order.source.to_string(), "backends.conf:3");
}

#[test]
fn includes_take_the_place_of_their_line() {
    let files = files([
        (
            "a/backends.conf",
            "mm = cuda\ninclude b.conf\nbmm = cpu\ninclude = ../c.conf\n",
        ),
        ("a/b.conf", "mm = cpu"),
        ("c.conf", "bmm = cuda"),
    ]);
    let layer = read_backends_conf(&files, Path::new("a/backends.conf"), &Names::built_in())
        .expect("valid");
    assert_eq!(
        routes(&layer),
        [
            "aten::mm = cuda @ a/backends.conf:1",
            "aten::mm = cpu @ a/b.conf:1",
            "aten::bmm = cpu @ a/backends.conf:3",
            "aten::bmm = cuda @ a/../c.conf:1",
        ]
    );
}

#[test]
fn errors_name_file_line_and_what_to_write() {
    let cases = [
        "\n\nmm cuda",
        "mm =",
        "= cuda",
        "mm = cdua",
        "mm = cuda|",
        "mm = cuda|cuda",
        "add.Ten sor = cpu",
        "* = chip",
        "mm = cuda = cpu",
        "include",
        "include =",
        "include nowhere.conf",
        "include backends.conf",
    ];
    insta::assert_snapshot!(errors(&cases, conf));
}

#[test]
fn none_is_no_route_and_undoes_an_earlier_one() {
    let text = "mm = cpu\nadd.* = cpu\nmm = none\nsin = none\nadd.Tensor = none # flaggems\n";
    let layer = conf(text).expect("valid");
    let routes: Vec<_> = layer.ops.iter().map(|(op, _)| op.to_string()).collect();
    assert_eq!(routes, ["aten::add.*"]);
    assert!(conf("mm = none|cpu\n").is_err());
    assert!(conf("not a name! = none\n").is_err());
}

#[test]
fn backends_of_torch_fl_are_read() {
    for backend in ["flaggems_cpp", "gcu", "musa", "dcu", "tsingmicro", "ascend"] {
        conf(&format!("mm = {backend}\n")).expect(backend);
    }
}
