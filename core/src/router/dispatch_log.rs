//! The lines that `FLAGOS_LOG_DISPATCH` and `FLAGOS_LOG_FALLBACK` print. Programs around Torch-FL read them.

use std::io::Write as _;

use crate::policy::Plan;

/// The line for a call, with its end: the operator and the backend that serves it, by the name that the route of the
/// plan has for it. Operators of ATen are named without their namespace, as in configuration.
#[must_use]
pub fn dispatch_line(plan: Option<&Plan>, op: &str, backend: &str) -> String {
    let entry = plan.and_then(|plan| plan.find(op).ok());
    let backend = entry.map_or(backend, |entry| entry.logged_as(backend));
    let name = op.strip_prefix("aten::").unwrap_or(op);
    format!("[flagos dispatch] {name} -> {backend}\n")
}

/// The line for a call that does not run where the plan sent it, with its end.
fn fallback_line(op: &str, on_cpu: bool, reason: &str) -> String {
    if on_cpu {
        let name = op.split_once('.').map_or(op, |(name, _)| name);
        return format!("[flagos cpu_fallback] {name}\n");
    }
    format!("[flagos fallback] {op}: {reason}\n")
}

/// Writes the line for a call that does not run where the plan sent it. Nobody is told when that fails.
pub(super) fn log_fallback(op: &str, on_cpu: bool, reason: &str) {
    // One write, so that lines of several threads do not mix.
    let _ = std::io::stderr().write_all(fallback_line(op, on_cpu, reason).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::{dispatch_line, fallback_line};

    #[test]
    fn atens_namespace_is_left_out() {
        let line = dispatch_line(None, "aten::add.Tensor", "acme");
        assert_eq!(line, "[flagos dispatch] add.Tensor -> acme\n");
        let line = dispatch_line(None, "lightx2v::rope", "reference");
        assert_eq!(line, "[flagos dispatch] lightx2v::rope -> reference\n");
    }

    #[test]
    fn the_cpu_is_named_as_torch_fl_names_it() {
        let line = fallback_line("aten::add.Tensor", true, "why");
        assert_eq!(line, "[flagos cpu_fallback] aten::add\n");
        let line = fallback_line("aten::add.Tensor", false, "x declined: why");
        assert_eq!(
            line,
            "[flagos fallback] aten::add.Tensor: x declined: why\n"
        );
    }
}
