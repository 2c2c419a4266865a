"""The vendor `ascend` of flagos: its library, which flagos finds by `ascend.toml` here, and its part of Triton."""
