"""A double of what of vLLM 0.26 decides about platforms. `seam_facts.py` compares it with vLLM itself."""
