"""Greedy tokens without the fence of the overlapped scheduler, which flagos refuses: ``fence.py FOLDER OPTIONS``."""

from __future__ import annotations

import json
import sys

import serving
import tiny

if __name__ == "__main__":
    from sglang_flagos import rules

    rules.RULES = tuple(rule for rule in rules.RULES if rule.__name__ != "_variables")
    made = serving.engine(sys.argv[1], **json.loads(sys.argv[2]))
    serving.report(made, many=serving.tokens(made, tiny.prompts() * 5))
