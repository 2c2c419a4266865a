"""The vendor `ascend` of flagos: its library, which flagos finds by `ascend.toml` in this folder."""
