//! Every declared variable: those of flagos, and those of the vendors of this build, which their descriptions declare.

use std::sync::LazyLock;

use super::{ANY_ENDING, Group, OP, OP_PREFIX, VARS, Var, VarKind};
use crate::descriptions;

/// The variables of every vendor of this build, by the vendor's name. A vendor's library reads its own.
fn of_vendors() -> &'static [Var] {
    static VARIABLES: LazyLock<Vec<Var>> = LazyLock::new(|| {
        let variables = descriptions::built_in()
            .into_iter()
            .flat_map(|description| {
                description.variables.iter().map(|variable| Var {
                    name: &variable.name,
                    kind: VarKind::Text,
                    default: "",
                    doc: &variable.text,
                    group: Group::Vendor(&description.name),
                })
            });
        variables.collect()
    });
    &VARIABLES
}

/// Whether `name` is a variable of a vendor, whose empty value may differ from none.
pub(super) fn is_vendors(name: &str) -> bool {
    of_vendors().iter().any(|variable| variable.name == name)
}

impl Group {
    /// Every group in the order of the documentation.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let mut groups = vec![
            Self::Configuration,
            Self::Routing,
            Self::Logging,
            Self::FlagGems,
            Self::LightX2v,
            Self::Host,
        ];
        groups.extend(of_vendors().iter().map(|var| var.group));
        groups.dedup();
        groups.extend([Self::TransformerEngine, Self::Collectives, Self::Legacy]);
        groups
    }

    /// The variables of the group.
    pub fn vars(self) -> impl Iterator<Item = &'static Var> {
        let vars = VARS.iter().chain(of_vendors());
        vars.filter(move |var| var.group == self)
    }
}

/// The declaration of `name`, if there is one. A name's own declaration beats that of its family.
#[must_use]
pub fn declaration(name: &str) -> Option<&'static Var> {
    if name.len() > OP_PREFIX.len() && name.starts_with(OP_PREFIX) {
        return VARS.iter().find(|var| var.name == OP.name);
    }
    let mut vars = VARS.iter().chain(of_vendors());
    let own = vars.find(|var| var.name == name);
    own.or_else(|| VARS.iter().find(|var| is_in_family(name, var)))
}

/// Whether `var` declares a family, and `name` is one of it.
fn is_in_family(name: &str, var: &Var) -> bool {
    let rest = var.name.strip_suffix(ANY_ENDING);
    rest.is_some_and(|prefix| name.len() > prefix.len() && name.starts_with(prefix))
}
