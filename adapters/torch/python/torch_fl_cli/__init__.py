"""What the torch adapter contributes to the `flagos` command: doctor checks, commands, the demonstration.

A package of its own beside `torch_fl`, because importing that one imports torch and registers the device:
`flagos doctor` must work where either fails. Importing this package imports neither.
"""
