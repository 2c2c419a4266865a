"""The tools around the device `flagos` in PyTorch: what a program's own process does not need.

`flaggems` verifies, measures and packs FlagGems' kernels (`flagos verify`, `tune`, `pack`), `records` writes and reads
the distinct operator calls of programs (`flagos record`), `accuracy` judges routes by what a program yields, `bisect`
finds the operators that make it fail, and `report` tells what a program did. `comparing` is what they share: processes
that may die, and arguments rebuilt on another device.

Importing this package imports neither torch nor `torch_fl`, so that the commands start where either fails. Their parts
within a program are entry points of the group `torch_fl.tools` (`torch_fl.tools.Tool`).
"""
