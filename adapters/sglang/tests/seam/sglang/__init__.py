"""A double of SGLang's platform seam, by the facts of `seam_facts.py`."""
