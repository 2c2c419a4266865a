//! `FLAGOS_LOG`: levels, and the words of Torch-FL for what is printed beside them.

use super::{Env, LOG};
use crate::nearest;
use crate::{Error, Result};

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
const DISPATCH: &str = "dispatch";
const FALLBACK: &str = "fallback";
const OP_CACHE: &str = "op_cache";

const HINT: &str = "use off, error, warn, info, debug or trace, or a list: info,flagos_core::runtime=trace; \
     dispatch and fallback may be in it";

/// The filter that `FLAGOS_LOG` names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogSetting {
    /// The levels alone, separated by commas; `None` where the text has only words.
    pub levels: Option<String>,
    /// Each operator call is printed.
    pub dispatch: bool,
    /// Each fallback is printed.
    pub fallback: bool,
    /// Torch-FL's statistics of cached calls are asked for, which flagos has none of.
    pub op_cache: bool,
}

impl LogSetting {
    /// Reads the text of the variable. Fails for a word that is neither a level nor a module of flagos, which the
    /// levels' own grammar would take for the name of a module that nothing logs under.
    pub fn parse(text: &str) -> Result<Self> {
        let mut setting = Self::default();
        let mut levels = Vec::new();
        for part in text.split(',') {
            let word = part.trim().to_ascii_lowercase();
            match &*word {
                "" => {}
                DISPATCH => setting.dispatch = true,
                FALLBACK => setting.fallback = true,
                OP_CACHE => setting.op_cache = true,
                _ if may_be_a_level(&word) => levels.push(part.trim()),
                _ => return Err(unknown(part.trim())),
            }
        }
        setting.levels = (!levels.is_empty()).then(|| levels.join(","));
        Ok(setting)
    }
}

impl Env {
    /// The filter that `FLAGOS_LOG` names.
    pub fn log(&self) -> Result<LogSetting> {
        self.get(LOG.name)
            .map_or_else(|| Ok(LogSetting::default()), LogSetting::parse)
    }
}

/// Whether the grammar of levels is to read it: a level, or a module of this project with or without a level.
fn may_be_a_level(word: &str) -> bool {
    LEVELS.contains(&word)
        || word.bytes().all(|byte| byte.is_ascii_digit())
        || word.contains('=')
        || word.contains("::")
        || word.starts_with("flagos")
        || word == "_core"
}

fn unknown(word: &str) -> Error {
    let known = LEVELS.into_iter().chain([DISPATCH, FALLBACK, OP_CACHE]);
    let error = Error::config(
        "FLAGOS_LOG",
        format!("`{word}` is no level, module or word"),
    );
    match nearest::hint(word, known) {
        Some(hint) => error.with_hint(hint),
        None => error.with_hint(HINT),
    }
}

#[cfg(test)]
mod tests {
    use super::LogSetting;

    #[test]
    fn words_are_taken_out_and_levels_are_left() {
        let setting = LogSetting::parse("dispatch, Fallback,").expect("valid");
        assert!(setting.dispatch && setting.fallback && !setting.op_cache);
        assert_eq!(setting.levels, None);
        let setting = LogSetting::parse("info,dispatch,flagos_core::runtime=trace").expect("valid");
        assert!(setting.dispatch && !setting.fallback);
        assert_eq!(
            setting.levels.as_deref(),
            Some("info,flagos_core::runtime=trace")
        );
        assert!(LogSetting::parse("op_cache").expect("valid").op_cache);
    }

    #[test]
    fn a_misspelled_word_is_no_module() {
        let error = LogSetting::parse("dispach").expect_err("a typo");
        assert!(error.to_string().contains("dispatch"), "{error}");
        assert!(LogSetting::parse("wran,dispatch").is_err());
    }
}
