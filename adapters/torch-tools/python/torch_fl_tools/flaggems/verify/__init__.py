"""`flagos verify`: verdicts on FlagGems' overloads.

`command` is the command line, `run` verifies overloads on samples, each in a process of its own, `recorded` completes
their verdicts by recorded calls, `entries` has the verdicts and why they may be missing, `summary` tells them in words,
and `requirements` says what must be there first.
"""
