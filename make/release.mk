# Releases; included by the Makefile. CONTRIBUTING.md has the steps.

##@ Releases

# Another processor is emulated by qemu, as a user's machine; torch's wheel and what it needs are some 4 GB for each torch.
SMOKE_TORCHES ?= $(DIST_TORCHES)
.PHONY: dist-smoke
dist-smoke: | $(STAMPS)/requirements ## dist/portable's wheels on an emulated aarch64, with SMOKE_TORCHES: import, core, training steps
	"$(PY)" -m tests.emulated $(SMOKE_TORCHES) --wheels $(PORTABLE) $(ARGS)

.PHONY: release-check
release-check: $(STAMPS)/requirements ## check that this commit can be released: tree, version, changelogs; portable wheels, and the demo from them for each torch
	"$(PY)" -m tests.release check
	"$(MAKE)" dist
	"$(PY)" -m tests.release try --wheels "$(PORTABLE)" $(DIST_TORCHES)

.PHONY: release-version
release-version: $(STAMPS)/requirements ## write VERSION=... wherever a file has it
	"$(PY)" -m tests.release write "$(VERSION)"
