"""The device in other libraries (DLPack), in other processes, and in the profiler."""
