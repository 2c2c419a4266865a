//! The operators that a change can affect.

use std::collections::BTreeSet;

use crate::policy::Plan;
use crate::registry::{FLAG_LOG_DISPATCH, OpId};

/// The operators that a change can affect.
pub(super) enum Scope {
    /// All operators, with a check of the whole configuration.
    All,
    /// These operators, and new ones.
    Ops(BTreeSet<OpId>),
}

/// Whether a plan has to agree with `FLAGOS_LOCK`. After a change by the program itself it need not.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Lock {
    Compared,
    Ignored,
}

/// The flags of every slot under a plan.
pub(super) fn flags(plan: &Plan) -> u32 {
    if plan.policy().log_dispatch.value {
        FLAG_LOG_DISPATCH
    } else {
        0
    }
}
