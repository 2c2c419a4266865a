//! What a name that is no operator's may mean.

use super::op::OpName;
use crate::nearest;

/// A hint at the operator among `known`, qualified names, that the unknown `name` may mean: the overloads of
/// a base name, the operator of that name in another namespace, or the nearest name.
pub(crate) fn suggest<'a>(
    name: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> Option<String> {
    let parsed = OpName::parse(name).ok();
    let qualified = parsed.map_or_else(|| name.to_owned(), |parsed| parsed.to_string());
    if let Some(parsed) = parsed {
        let overloads = overloads(parsed.namespace, parsed.base, known.clone());
        if !overloads.is_empty() {
            // A name with an overload may be a typo of another one; a bare name is none.
            let typo = if parsed.overload.is_empty() {
                None
            } else {
                nearest::hint(&qualified, overloads.iter().copied())
            };
            return typo.or_else(|| {
                let names: Vec<_> = overloads.iter().map(|n| format!("`{n}`")).collect();
                Some(format!("its overloads are {}", names.join(", ")))
            });
        }
        let tail = format!("::{}", name.rsplit("::").next().unwrap_or(name));
        if let Some(elsewhere) = known.clone().find(|known| known.ends_with(&tail)) {
            return Some(format!("did you mean `{elsewhere}`?"));
        }
    }
    nearest::hint(&qualified, known)
}

/// Those of `known`, qualified names, that are overloads of `namespace::base`, sorted.
pub(super) fn overloads<'a>(
    namespace: &str,
    base: &str,
    known: impl Iterator<Item = &'a str>,
) -> Vec<&'a str> {
    let bare = format!("{namespace}::{base}");
    let mut names: Vec<_> = known
        .filter(|name| {
            let rest = name.strip_prefix(bare.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
        .collect();
    names.sort_unstable();
    names
}
