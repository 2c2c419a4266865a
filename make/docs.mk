# The documentation site; included by the Makefile. website/README.md says how it is made.

##@ Documentation

# A folder of its own: the site needs neither torch nor the wheels.
DOCS := $(abspath $(VENV))/docs
MKDOCS = NO_MKDOCS_2_WARNING=1 PYTHONPATH="$(DOCS)" "$(PY)" -m mkdocs
$(STAMPS)/docs: requirements/docs.txt $(STAMPS)/venv
	@rm -rf "$(DOCS)"
	$(PIP) install --quiet --no-deps --target "$(DOCS)" -r requirements/docs.txt
	@touch "$@"

# Rust's documentation takes a minute, so it is in the site where it is asked for: make docs RUST=1.
RUST ?=
ifneq ($(RUST),)
docs: export SITE_RUST := $(or $(CARGO_TARGET_DIR),$(ROOT)/target)/doc
# A module may name the private ones that it is made of; every other link has to lead somewhere.
docs: export RUSTDOCFLAGS := -D warnings -A rustdoc::private_intra_doc_links
endif

.PHONY: docs-serve
docs-serve: $(STAMPS)/docs ## serve the site on this machine, and build it again when a page changes
	$(MKDOCS) serve --config-file website/mkdocs.yml $(ARGS)

.PHONY: test-docs
test-docs: export PYTHONPATH := $(DOCS)
test-docs: setup-dev $(STAMPS)/docs ## check that the site builds without a warning and is complete, and the workflows of a hosted CI
	$(pytest) tests/site $(ARGS)
