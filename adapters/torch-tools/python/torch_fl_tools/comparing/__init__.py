"""Tools to compare a device with its native one: arguments rebuilt there, and processes that may die.

`flagos verify` and the conformance sweep use them.
"""
