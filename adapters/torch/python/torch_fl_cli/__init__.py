"""Contributions of the torch adapter to the `flagos` command: doctor checks, benchmarks, the demonstration.

The package is separate from `torch_fl`, whose import imports torch and registers the device: `flagos doctor`
must work where either fails. Importing this package imports neither torch nor `torch_fl`.
"""
