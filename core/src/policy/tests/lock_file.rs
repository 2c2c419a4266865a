//! Lock files.

use super::*;

#[test]
fn the_text_is_sorted_and_stable() {
    let plan = resolve("[ops]\n\"mm.out\" = \"ascend\"").expect("a plan");
    insta::assert_snapshot!(plan.lock());
}

#[test]
fn a_plan_agrees_with_its_own_lock() {
    let plan = resolve("[ops]\n\"mm.out\" = \"ascend\"").expect("a plan");
    plan.check_lock("flagos.lock", &plan.lock())
        .expect("no difference");
}

#[test]
fn a_difference_names_the_operator_and_what_decided() {
    let locked = resolve("").expect("a plan").lock();
    let locked = locked.replace("\"aten::add.Scalar\" = \"cuda.native\"\n", "");
    let locked = format!("{locked}\"aten::gone\" = \"cuda.native\"\n");
    let now = resolve("[ops]\nmm = \"cpu\"\n\"mm.out\" = \"ascend\"").expect("a plan");
    let error = now
        .check_lock("flagos.lock", &locked)
        .expect_err("different");
    insta::assert_snapshot!(error.report());
}

#[test]
fn one_difference_is_not_called_several() {
    let locked = resolve("").expect("a plan").lock();
    let now = resolve("[ops]\nmm = \"cpu\"").expect("a plan");
    let error = now
        .check_lock("flagos.lock", &locked)
        .expect_err("different");
    assert!(
        error.message().contains("in 1 operator, first ~ aten::mm"),
        "{error}"
    );
}

#[test]
fn a_namespace_that_is_not_loaded_is_not_compared() {
    let plan = resolve("").expect("a plan");
    let locked = format!("{}\"lightx2v::norm\" = \"lx.fast\"\n", plan.lock());
    plan.check_lock("flagos.lock", &locked)
        .expect("no difference");
}

#[test]
fn what_is_not_a_lock_file_is_refused() {
    let cases = [
        "",
        "version = 2\n[ops]",
        "version = 1",
        "version = 1\n[ops]\nmm = 3",
        "x =",
    ];
    let plan = resolve("").expect("a plan");
    insta::assert_snapshot!(errors(&cases, |text| plan.check_lock("flagos.lock", text)));
}
