"""The documentation site and the workflows of a hosted CI; ``make test-docs`` has the tools that these tests need."""
