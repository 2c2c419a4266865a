# What `make lint` and `make format` look at; included by the Makefile.

##@ Generated sources

CXX_SOURCES := $(filter %.c %.cc %.h,$(call find_sources,adapters/torch/csrc adapters/torch/portable core/examples/vendor core/vendors \
  comm/simulated tests/bench))

# Only when something there has changed since the last look: building bindgen takes half a minute.
BINDINGS := comm/bindings/Cargo.toml comm/bindings/Cargo.lock $(wildcard comm/bindings/src/*.rs comm/bindings/*.h)
GENERATE_BINDINGS = LIBCLANG_PATH="$$("$(PY)" -c 'import clang; print(clang.__path__[0])')/native" \
  cargo run --quiet --locked --manifest-path comm/bindings/Cargo.toml --target-dir target/bindings --

.PHONY: bindings
bindings: $(STAMPS)/requirements-dev ## write the declarations of vendors' collective libraries from comm/bindings
	$(GENERATE_BINDINGS)

$(STAMPS)/bindings: $(BINDINGS) $(wildcard comm/src/library/bindings/*.rs) | $(STAMPS)/requirements-dev
	$(GENERATE_BINDINGS) --check
	@touch $@
