"""FlagGems' kernels verified, measured and packed: what `torch_fl.flaggems` then reads."""
