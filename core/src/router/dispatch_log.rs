//! The lines that `FLAGOS_LOG_DISPATCH` prints.

/// The line for a call, with its end: the operator and the backend that serves it. Operators of ATen are
/// named without their namespace, as in configuration.
#[must_use]
pub fn dispatch_line(op: &str, backend: &str) -> String {
    let name = op.strip_prefix("aten::").unwrap_or(op);
    format!("[flagos dispatch] {name} -> {backend}\n")
}

#[cfg(test)]
mod tests {
    use super::dispatch_line;

    #[test]
    fn atens_namespace_is_left_out() {
        let line = dispatch_line("aten::add.Tensor", "acme");
        assert_eq!(line, "[flagos dispatch] add.Tensor -> acme\n");
        let line = dispatch_line("lightx2v::rope", "reference");
        assert_eq!(line, "[flagos dispatch] lightx2v::rope -> reference\n");
    }
}
