//! What is special about vendors, as data: their descriptions, and the names by which configuration may call them.
//!
//! A vendor of this build declares its description with `inventory`, so that modules below that of the vendors read it.

mod description;
mod elsewhere;
mod names;
pub mod wheels;

pub(crate) use description::check_name;
pub use description::{Description, NeededLibrary, Serving, Variable};
pub use names::{Ambiguous, Names};

/// The declaration of a vendor of this build.
#[derive(Debug)]
pub struct Declared(pub fn() -> &'static Description);

inventory::collect!(Declared);

/// The description of every vendor of this build, sorted by name.
#[must_use]
pub fn built_in() -> Vec<&'static Description> {
    let declared = inventory::iter::<Declared>();
    let mut descriptions: Vec<_> = declared
        .map(|Declared(description)| description())
        .collect();
    descriptions.sort_unstable_by_key(|description| &description.name);
    descriptions
}
