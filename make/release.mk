# A release; included by the Makefile. CONTRIBUTING.md has the steps.

.PHONY: release-check
release-check: $(STAMPS)/requirements ## whether this commit can be released: tree, version, changelogs; portable wheels, and the demo from them for each torch
	"$(PY)" -m tests.release check
	"$(MAKE)" dist
	"$(PY)" -m tests.release try --wheels "$(PORTABLE)" $(DIST_TORCHES)

.PHONY: release-version
release-version: $(STAMPS)/requirements ## write VERSION=... wherever a file has it
	"$(PY)" -m tests.release write "$(VERSION)"
