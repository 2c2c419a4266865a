//! An adapter's declaration about all operators of its namespace.

/// How implementations of one namespace are chosen. The default is that of `aten`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Namespace {
    /// Whether among equals the alphabetically last id wins, instead of the first.
    pub last_id_wins: bool,
    /// Whether implementations take tensors of any device. Then the active vendor excludes no implementation,
    /// and implementations are unavailable only where their own probes say so.
    pub any_device: bool,
}
