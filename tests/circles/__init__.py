"""The two circles of tests: which part runs when, and how long it takes.

``parts.toml`` is the table of parts, each a target of the Makefile. `parts` reads it, `planning` chooses what CI runs
beside the inner circle, `landings` records what ran with which landing, `running` runs parts and keeps their times, and
`durations` shows where the time goes. ``python -m tests.circles --help`` lists the commands.
"""
