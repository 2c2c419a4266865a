"""FlagGems' kernels verified by recorded calls (`torch_fl_tools.records`), on memory with red zones."""
