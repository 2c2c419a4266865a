"""Conformance of a device with its native device, over the databases PyTorch tests itself with.

Every operator, module and optimizer PyTorch describes in ``torch.testing._internal`` is run twice on
the same inputs, once on the reference device and once on the device under test, and everything a
program can observe is compared: values to the bit, dtype, shape, strides, layout, device, aliasing,
version counters, random state and the errors raised.

    python -m tests.conformance --ops 'add*' --dtypes float32
"""
