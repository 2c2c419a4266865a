//! The documentation of the environment, generated from the declarations.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::{Group, VarKind};

impl Group {
    fn title(self) -> Cow<'static, str> {
        let title = match self {
            Self::Configuration => "Configuration",
            Self::Routing => "Routing",
            Self::Logging => "Logging",
            Self::FlagGems => "FlagGems",
            Self::LightX2v => "LightX2V",
            Self::Host => "The host device",
            Self::Vendor(name) => return format!("The vendor `{name}`").into(),
            Self::TransformerEngine => "TransformerEngine",
            Self::Collectives => "Collectives",
            Self::Legacy => "Names of Torch-FL",
        };
        title.into()
    }

    const fn introduction(self) -> Option<&'static str> {
        match self {
            Self::Vendor(_) => Some("The vendor's own variables, which other programs read too."),
            Self::Host => Some("These beat the `[host]` table of `flagos.toml`."),
            Self::TransformerEngine => Some(
                "Names and meaning are TransformerEngine-FL's, for the operators `te::*` alone. A \
                 `FLAGOS_OP_te__<op>`\nbeats them, and they beat `flagos.toml`.",
            ),
            Self::Legacy => Some(
                "Torch-FL was PyTorch-Plugin-FL. flagos recognises these. Those without a value have no effect and \
                 are\nwarned about; the table says what replaces them. `<name>` is any ending.",
            ),
            _ => None,
        }
    }
}

impl VarKind {
    const fn describe(self) -> &'static str {
        match self {
            Self::Flag => "`1` or `0`",
            Self::Count => "integer",
            Self::Limit => "integer or `unlimited`",
            Self::Bytes => "bytes (`512MiB`)",
            Self::Path => "path",
            Self::Paths => "paths, separated by `:`",
            Self::Text => "text",
            Self::Route => "selectors (`vendor\\|cpu`)",
            Self::Retired => "–",
        }
    }
}

/// The text of `docs/environment.md`.
#[must_use]
pub fn markdown() -> String {
    let mut text = String::from(
        "# Environment variables\n\n\
         <!-- Generated from core/src/env.rs, and from the vendors' descriptions: edit those, then run\n     \
         BLESS=1 cargo test -p flagos-core --test environment -->\n\n\
         An empty value means \"not set\", except for a vendor's own variables. In a set-user-id program, or \
         one with\nfile capabilities, variables that name a path are ignored with a warning. A `FLAGOS_` \
         variable that is\nnot listed here is an error, unless it begins with the name of a vendor that has a wheel \
         of its own, which checks it:\n`FLAGOS_ASCEND_` ([Ascend](ascend.md#environment)), `FLAGOS_METAX_` \
         ([MetaX](metax.md#environment)). Variables are read once, when flagos initialises; \
         `flagos.reload()` reads\nthem again.\n\n\
         Layers, the weakest first: built-in defaults, `flagos.toml`, `backends.conf`, the \
         environment,\ncalls of the API, the active context.\n",
    );
    for group in Group::all() {
        section(&mut text, group);
    }
    text
}

fn section(text: &mut String, group: Group) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "\n## {}\n", group.title());
    if let Some(introduction) = group.introduction() {
        let _ = writeln!(text, "{introduction}\n");
    }
    text.push_str("| Variable | Value | Default | What it does |\n|---|---|---|---|\n");
    for var in group.vars() {
        let value = var.kind.describe();
        let _ = writeln!(
            text,
            "| `{}` | {value} | {} | {} |",
            var.name,
            if var.default.is_empty() {
                "–"
            } else {
                var.default
            },
            var.doc,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::Group;

    #[test]
    fn names_are_declared_once_and_documented() {
        let vars: Vec<_> = Group::all().into_iter().flat_map(Group::vars).collect();
        for (index, var) in vars.iter().enumerate() {
            assert!(!var.doc.is_empty(), "{}", var.name);
            let again = vars[index + 1..].iter().any(|other| other.name == var.name);
            assert!(!again, "{} is declared twice", var.name);
        }
    }
}
