"""torch.compile on the flagos device.

Nothing here is imported before the first compilation: Dynamo and Inductor are large, and programs
that never compile must not pay for them.
"""
