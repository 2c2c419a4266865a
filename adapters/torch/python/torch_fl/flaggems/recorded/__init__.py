"""FlagGems' kernels verified by recorded calls (`torch_fl.records`), on memory with red zones."""
