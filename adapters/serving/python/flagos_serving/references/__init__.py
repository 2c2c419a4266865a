"""The engines' operators by their formulas, in torch's operators: they run on every device.

Sums are in float32, and results are rounded where the engines' kernels round. What a reference does not know, it
declines (`flagos_serving.declaration.decline`).
"""
