"""Behaviour of torch.nn that depends on the device type."""
