//! What an adapter says of all operators of its namespace.

/// How implementations of one namespace are chosen. The default is that of `aten`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Namespace {
    /// Whether among equals the alphabetically last id wins, instead of the first.
    pub last_id_wins: bool,
    /// Whether implementations take tensors of any device: then the vendor of the flagos device
    /// excludes none, and their own probes say whether they can run.
    pub any_device: bool,
    /// Names of vendors that configuration may use although none has registered anything.
    pub vendors: &'static [&'static str],
}
