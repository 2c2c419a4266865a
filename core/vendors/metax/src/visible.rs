//! Which of a machine's devices a process sees. The runtime reads both variables itself, when it is initialised.

/// The runtime's own variable.
pub(super) const VARIABLE: &str = "MACA_VISIBLE_DEVICES";
/// What the runtime reads where its own variable is not set.
pub(super) const SECOND: &str = "CUDA_VISIBLE_DEVICES";

/// How a message names the choice of devices: the variable that counts, with its value.
pub(super) fn told(value: impl Fn(&str) -> Option<String>) -> String {
    let set = [VARIABLE, SECOND]
        .into_iter()
        .find_map(|name| Some(format!("{name}=`{}`", value(name)?)));
    set.unwrap_or_else(|| format!("{VARIABLE} is not set"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runtimes_own_variable_comes_first() {
        let both = |name: &str| Some(if name == VARIABLE { "1" } else { "0" }.to_owned());
        assert_eq!(told(both), "MACA_VISIBLE_DEVICES=`1`");
        let second = |name: &str| (name == SECOND).then(|| "0".to_owned());
        assert_eq!(told(second), "CUDA_VISIBLE_DEVICES=`0`");
        assert_eq!(told(|_| None), "MACA_VISIBLE_DEVICES is not set");
    }
}
