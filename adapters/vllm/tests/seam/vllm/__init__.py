"""A double of what of vLLM decides about platforms. `seam_facts.py` compares it with vLLM itself."""
