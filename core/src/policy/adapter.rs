//! Variables of other projects that an adapter reads.

use super::layer::Layer;
use crate::Result;
use crate::descriptions::Names;
use crate::env::Env;

/// A reader of one adapter's variables into a layer. The layer lies right below that of the environment,
/// until a call of the adapter's API replaces it.
pub struct AdapterEnv {
    /// The name of the adapter.
    pub adapter: &'static str,
    /// Reads the variables; `None` when none of them is set.
    pub layer: fn(&Env, &Names) -> Result<Option<Layer>>,
}

inventory::collect!(AdapterEnv);

/// The layer of every adapter that is linked in, sorted by name.
pub(super) fn layers(env: &Env, names: &Names) -> Result<Vec<(&'static str, Layer)>> {
    let mut adapters: Vec<_> = inventory::iter::<AdapterEnv>().collect();
    adapters.sort_by_key(|adapter| adapter.adapter);
    let read = |adapter: &&AdapterEnv| match (adapter.layer)(env, names) {
        Ok(layer) => layer.map(|layer| Ok((adapter.adapter, layer))),
        Err(error) => Some(Err(error)),
    };
    adapters.iter().filter_map(read).collect()
}
