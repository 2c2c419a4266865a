"""`flagos accuracy`: whether a program's outputs on the configured routes are as right as native kernels' are.

The command: `gate` (which runs there are, and what follows from them), `native` (the runs that show native's own
noise), `outputs` (what a run left), `measures` (two runs beside each other), `limits` (noise, limits and what is
beyond), `score` (a function of the user's), `results` (what was found), `report` (that in words). The runs, and the
search after a failure, are those of `flagos bisect`.

In the program's processes `within` begins, `observed` writes what the program yields, and `rounding` has native kernels
round otherwise.
"""
