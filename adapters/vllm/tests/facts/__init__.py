"""What the adapter relies on in vLLM, read from a release's sources: `make vllm-diff RELEASE=...`."""
