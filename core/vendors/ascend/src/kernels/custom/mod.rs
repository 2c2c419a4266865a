//! Operators that are more than one function of CANN, or whose arguments have to be prepared.

mod attention;
mod elementwise;
mod foreach;
mod indexing;
mod losses;
mod norms;
mod operator;
mod optimizers;
mod pools;
mod random;
mod sizes;

pub(super) use self::operator::Custom;

/// Every operator of this folder.
pub(super) fn all() -> impl Iterator<Item = &'static Custom> {
    let foreach = foreach::ALL.iter().copied();
    let others = [
        attention::ALL,
        elementwise::ALL,
        indexing::ALL,
        losses::ALL,
        norms::ALL,
        optimizers::ALL,
        pools::ALL,
        random::ALL,
        sizes::ALL,
    ];
    others.into_iter().flatten().chain(foreach)
}
