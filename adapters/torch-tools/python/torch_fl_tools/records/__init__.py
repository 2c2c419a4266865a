"""Records: the distinct operator calls of a program, as facts about their arguments and never as their data.

`flagos record` writes one, and `flagos verify --record` runs its calls by FlagGems' kernels and by the native ones.
The folder `shipped` has what whole models call, which `flagos verify` runs too.
"""
