"""Random programs, run on the CPU and on the device side by side.

A program is a list of steps, each a few lines of Python over the tensors of the steps before it. After
every step, also one that raised, everything a program can observe of every live tensor is compared.

    python -m tests.fuzz --seconds 60
"""
