//! How far a change reaches.

use std::collections::BTreeSet;

use crate::policy::Plan;
use crate::registry::{OpId, FLAG_LOG_DISPATCH};

/// What a change can affect.
pub(super) enum Scope {
    /// Everything: the whole configuration is checked.
    All,
    /// These operators, and those that are new.
    Ops(BTreeSet<OpId>),
}

/// Whether a plan has to agree with `FLAGOS_LOCK`. A change the program itself asks for need not.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Lock {
    Compared,
    Ignored,
}

/// The flags of every slot under a plan.
pub(super) fn flags(plan: &Plan) -> u32 {
    match plan.policy().log_dispatch.value {
        true => FLAG_LOG_DISPATCH,
        false => 0,
    }
}
