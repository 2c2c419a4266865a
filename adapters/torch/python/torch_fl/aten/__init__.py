"""Operators of torch on the device, and the implementations that serve them."""
