"""Operators of torch on the device: which there are, and which implementation serves each."""
