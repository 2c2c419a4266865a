# Searches for what no test names; included by the Makefile.

##@ Fuzzing and model checking

.PHONY: loom
loom: $(STAMPS)/venv ## model-check the lock-free parts (slot swap, cross-thread free)
	RUSTFLAGS="--cfg loom" cargo test -p flagos-core -p flagos-comm --lib --release --locked --target-dir target/loom loom $(ARGS)

.PHONY: fuzz-sample
fuzz-sample: setup-dev ## the same random programs each time, on cpu and on flagos side by side
	"$(PY)" -m tests.fuzz --programs 300 $(ARGS)

FUZZ_SECONDS ?= 60
.PHONY: fuzz
fuzz: setup-dev ## random programs on cpu and on flagos side by side, as long as there is time; ARGS="--seconds 600 --seed 1"
	"$(PY)" -m tests.fuzz $(ARGS)

.PHONY: fuzz-grammars
fuzz-grammars: $(STAMPS)/venv ## fuzz configuration, manifests and tables of vendors, FUZZ_SECONDS=60 each
	@cargo fuzz --version >/dev/null 2>&1 || { \
	  echo "cargo-fuzz was not found: cargo install cargo-fuzz (it also needs a nightly toolchain)" >&2; exit 1; }
	@cd core/fuzz && for target in $$(cargo +nightly fuzz list); do \
	  mkdir -p corpus/"$$target"; \
	  cargo +nightly fuzz run "$$target" corpus/"$$target" seeds/"$$target" -- \
	    -max_total_time=$(FUZZ_SECONDS) $(ARGS); \
	done
