# A release; included by the Makefile. CONTRIBUTING.md has the steps.

.PHONY: release-check
release-check: $(STAMPS)/requirements ## whether this commit can be released: tree, version, changelogs; then portable wheels and auditwheel
	"$(PY)" -m tests.release check
	"$(MAKE)" dist

.PHONY: release-version
release-version: $(STAMPS)/requirements ## write VERSION=... wherever a file has it
	"$(PY)" -m tests.release write "$(VERSION)"
