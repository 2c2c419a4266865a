"""The vendor `metax` of flagos: its library, which flagos finds by `metax.toml` in this folder."""
