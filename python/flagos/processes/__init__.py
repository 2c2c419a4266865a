"""Child processes that may crash, hang, flood their output or leave processes behind.

`child` starts one and ends it with all of its descendants, `ending` names how it ended, `reports` collects what a
module of Python reports from a process, `foreground` runs a program as a shell does, and `pool` runs tasks in several
processes at a time.
"""
