//! Model checking of the slot: `RUSTFLAGS="--cfg loom" cargo test -p flagos-core --lib --release
//! registry::loom_tests`.

use loom::sync::Arc;
use loom::thread;

use super::slot::{Decision, OpSlot};

/// Publishes `decisions` in order while one reader looks twice; every reading must satisfy `valid`,
/// and the second must not be older than the first.
fn check(start: Decision, decisions: &'static [Decision], steps: &'static [Decision]) {
    loom::model(move || {
        let slot = Arc::new(OpSlot::default());
        slot.publish(start);
        let reader = {
            let slot = Arc::clone(&slot);
            thread::spawn(move || (slot.load(), slot.load()))
        };
        for decision in decisions {
            slot.publish(*decision);
        }
        let (first, second) = reader.join().expect("the reader finishes");
        let step = |seen| steps.iter().position(|step| *step == seen);
        let (first, second) = (step(first), step(second));
        assert!(first.is_some() && second.is_some(), "a mix was seen");
        assert!(first <= second, "the reader went back in time");
    });
}

#[test]
fn a_reader_sees_the_old_or_the_new_token() {
    use Decision::Foreign;
    check(Foreign(1), &[Foreign(2)], &[Foreign(1), Foreign(2)]);
}

#[test]
fn a_reader_that_sees_foreign_sees_its_token() {
    use Decision::{Foreign, Native};
    check(Native, &[Foreign(7)], &[Native, Foreign(7)]);
}

#[test]
fn a_token_outlives_the_route_away_from_it() {
    use Decision::{Blocked, Foreign};
    check(Foreign(7), &[Blocked], &[Foreign(7), Blocked]);
}

#[test]
fn a_reader_never_sees_a_token_older_than_its_route() {
    use Decision::{Foreign, Native};
    // A reader that loaded the route of the first plan may take the token of the third: that token
    // is newer, and valid.
    loom::model(|| {
        let slot = Arc::new(OpSlot::default());
        slot.publish(Foreign(1));
        let reader = {
            let slot = Arc::clone(&slot);
            thread::spawn(move || slot.load())
        };
        slot.publish(Native);
        slot.publish(Foreign(2));
        let seen = reader.join().expect("the reader finishes");
        assert!(matches!(seen, Foreign(1 | 2) | Native), "{seen:?}");
        assert_eq!(slot.load(), Foreign(2));
    });
}
