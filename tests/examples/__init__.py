"""The examples run, and print what docs/examples.md says."""
