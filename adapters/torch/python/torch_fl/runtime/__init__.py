"""The device beside torch's own machinery: other libraries' views of memory, other processes, the profiler."""
