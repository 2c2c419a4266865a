# The tests, in two circles; included by the Makefile.
#
# `make test` is the inner circle: whether a change is sound, in at most 20 minutes on a fresh clone with 2 cores. `make
# test-all` adds the outer one: everything that needs no accelerator. `.ci/run` runs the inner circle, and of the outer one
# what a change touches and a share of the rest in turn. tests/circles/parts.toml lists the parts of both, each of which is a
# target here that can be run alone: `make test-te ARGS="-k gemm"`.

# Some parts instead of the whole circle: make test PARTS="lint test-te".
PARTS ?=
CIRCLES := "$(PY)" -m tests.circles

.PHONY: test test-all
test: ## whether a change is sound: the inner circle of tests, at most 20 minutes
	@begun=$$(date +%s); "$(MAKE)" setup-dev; $(CIRCLES) run --since $$begun $(PARTS)
test-all: ## everything that needs no accelerator: both circles, some two hours
	@begun=$$(date +%s); "$(MAKE)" setup-dev; $(CIRCLES) run --since $$begun --all

.PHONY: ci-outer
ci-outer: setup-dev ## the parts of the outer circle that CI runs with this commit
	@$(CIRCLES) ci

.PHONY: ci-plan
ci-plan: setup-dev ## which parts of the outer circle CI runs with this commit, and when the others last ran
	@$(CIRCLES) plan $(ARGS)

# pytest, which keeps how long each test took: `python -m tests.circles times` shows that.
pytest = "$(PY)" -m pytest --junitxml="target/durations/$@$(1).xml" -o junit_duration_report=total
# Each folder in processes of its own: the plan and the device are the process's. Most of a test's time is one
# thread's, so two files run at once; ranks that wait for each other have the machine for themselves.
TWO := -n 2 --dist loadfile
# A test of some seconds has the mark `slow`, and is run by a part of the outer circle.
QUICK := -m "not slow"
SLOW := -m slow

# ------------------------------------------------------------------------------------------ Rust

# The extension modules have no Rust tests: they are tested from Python.
CARGO_TEST := --workspace $(addprefix --exclude ,flagos-bindings flagos-py torch-fl) --locked

.PHONY: test-rust
test-rust: $(STAMPS)/venv ## unit, property and vendor tests of the Rust crates
	@if cargo nextest --version >/dev/null 2>&1; then \
	  cargo nextest run $(CARGO_TEST) $(ARGS); \
	  cargo test --doc $(CARGO_TEST); \
	else \
	  cargo test $(CARGO_TEST) $(ARGS); \
	fi

# ---------------------------------------------------------------------------------------- Python

DISTRIBUTED := $(addprefix adapters/torch/tests/test_,distributed.py distributed_attention.py several_hosts.py)
# With FlagGems interpreted, in processes of their own.
FLAGGEMS_TESTS := adapters/torch/tests/flaggems adapters/torch-tools/tests/flaggems adapters/vllm/tests/test_flaggems.py
OTHER_PARTS := $(addprefix --ignore=tests/,ascend ascend_triton metax simulated_ascend simulated_metax site)
QUICK_PARTS := $(addprefix test-,python torch distributed te lightx2v vllm-seam whole)
SLOW_PARTS := $(addsuffix -slow,$(addprefix test-,torch whole))
.PHONY: $(QUICK_PARTS) $(SLOW_PARTS) test-models
test-python: ## the wheel flagos: native module, Python API, command line
test-torch: ## the device in torch, without the collectives, and the tools around it
test-torch-slow: ## compilers, searches by `flagos bisect`, records, and what else takes seconds of the device in torch
test-distributed: ## the backend of torch.distributed, with ranks as processes
test-te: ## the TransformerEngine adapter
test-lightx2v: ## the LightX2V adapter
test-vllm-seam: ## the vLLM adapter over a double of vLLM's plugin seam
test-models: ## whole models, which test-whole and test-whole-slow run too
test-whole: ## tests/: whole models, launches, the fuzzer, the conformance harness, the layout
test-whole-slow: ## what takes seconds of tests/: the tools for GPUs, pages that are followed
test-python: FOLDER := python/tests
test-torch test-torch-slow: FOLDER := adapters/torch/tests adapters/torch-tools/tests $(TWO) $(addprefix --ignore=,$(DISTRIBUTED) $(FLAGGEMS_TESTS))
test-distributed: FOLDER := $(DISTRIBUTED)
test-te: FOLDER := adapters/te/tests $(TWO)
test-lightx2v: FOLDER := adapters/lightx2v/tests tests/examples/test_lightx2v.py $(TWO)
test-vllm-seam: FOLDER := adapters/vllm/tests $(TWO) $(addprefix --ignore=,$(FLAGGEMS_TESTS))
test-models: FOLDER := tests/models $(TWO)
test-whole test-whole-slow: FOLDER := tests $(TWO) $(OTHER_PARTS)
test-whole-slow: FOLDER += --ignore=tests/examples
$(QUICK_PARTS): setup-dev
	$(pytest) $(FOLDER) $(QUICK) $(ARGS)
$(SLOW_PARTS): setup-dev
	$(pytest) $(FOLDER) $(SLOW) $(ARGS)
test-models: setup-dev
	$(pytest) $(FOLDER) $(ARGS)

.PHONY: test-examples
test-examples: setup-dev ## the programs of examples/ beside what docs/examples.md says that they print
	$(pytest) tests/examples -n 2 $(SLOW) $(ARGS)

# Once interpreted, on the host's tensors, and once compiled, over a simulated driver. FLAGGEMS_PATH=... takes a checkout
# of FlagGems instead of the version that is tested.
FLAGGEMS_LAUNCHES := $(patsubst %,adapters/torch/tests/launcher/test_%.py,flaggems configurations) \
  adapters/torch-tools/tests/launches
.PHONY: test-flaggems test-flaggems-slow
test-flaggems test-flaggems-slow: export PYTHONPATH := $(FLAGGEMS)
ifdef FLAGGEMS_PATH
test-flaggems test-flaggems-slow: export FLAGGEMS_SOURCE_DIR := $(abspath $(FLAGGEMS_PATH))/src/flag_gems
endif
test-flaggems: setup-dev $(STAMPS)/flaggems ## FlagGems' operators interpreted, and their launches over a simulated driver
	TRITON_INTERPRET=1 $(pytest) $(FLAGGEMS_TESTS) $(TWO) $(QUICK) $(ARGS)
	$(call pytest,-launches) $(FLAGGEMS_LAUNCHES) $(QUICK) $(ARGS)
test-flaggems-slow: setup-dev $(STAMPS)/flaggems ## verdicts on every operator, recorded calls, bisect among FlagGems' kernels
	TRITON_INTERPRET=1 $(pytest) $(FLAGGEMS_TESTS) tests/examples/test_flaggems.py $(TWO) $(SLOW) $(ARGS)
	$(call pytest,-launches) $(FLAGGEMS_LAUNCHES) $(SLOW) $(ARGS)

.PHONY: test-ascend-triton
test-ascend-triton: export ASCEND_TRITON_PATH := $(ASCEND_TRITON)
test-ascend-triton: setup-dev $(STAMPS)/ascend-triton ## triton-ascend's wheel on flagos, over a simulated Ascend runtime
	$(pytest) tests/ascend_triton $(TWO) $(ARGS)

# vLLM and what it needs are a hundred packages.
.PHONY: test-vllm
test-vllm: export VLLM_PATH := $(VLLM)
test-vllm: setup-dev $(STAMPS)/vllm ## vLLM itself with tiny models on the host vendor, beside transformers on the CPU
	$(pytest) adapters/vllm/tests tests/examples/test_vllm.py -m "vllm or slow" $(ARGS)

.PHONY: test-torchs-distributed
test-torchs-distributed: setup-dev ## torch's own tests of torch.distributed, with the backend flagos
	"$(PY)" -m adapters.torch.tests.torchs_distributed --alone $(ARGS)

.PHONY: test-comm
test-comm: setup-dev ## 4 and 8 ranks, torchrun, a hundred lives of a group; torch's own tests beside gloo
	$(pytest) adapters/torch/tests/long_distributed.py tests/ascend/long_collectives.py $(ARGS)
	$(call pytest,-slow) $(DISTRIBUTED) $(SLOW)
	"$(PY)" -m adapters.torch.tests.torchs_distributed

.PHONY: test-bisect
test-bisect: setup-dev ## `flagos bisect` with several causes, hangs, searches that were ended
	$(pytest) adapters/torch-tools/tests/bisect/long_bisect.py tests/long_bisect_page.py $(TWO) $(ARGS)

.PHONY: test-zoo
test-zoo: setup-dev ## every architecture of transformers that its configuration makes small, beside the CPU
	"$(PY)" -m tests.models.zoo $(ARGS)

# -------------------------------------------------------------------------------- other torches

# Each torch in an environment of its own, .venv-torch-2.NN, of 7 GB.
.PHONY: test-torches
test-torches: ## the adapter's tests, whole models, the collectives and the conformance sample on every torch; takes hours
	for minor in $(DIST_TORCHES); do \
	  env -u VENV -u DIST "$(MAKE)" TORCH=$$minor setup-dev test-torch test-torch-slow test-models test-distributed \
	    conformance-sample; \
	done

# The oldest torch is tested whole. With the newest the shim is compiled, and the tests run of what a torch changes most; of
# those between one takes a turn, and shows whether the files that may not compile do. The commit's time says which, so that
# a commit has the same one each time.
NEWEST_TORCH ?= $(lastword $(TORCHES))
BETWEEN := $(filter-out $(firstword $(TORCHES)) $(lastword $(TORCHES)),$(TORCHES))
COMMITTED := $(or $(shell git log -1 --format=%ct 2>/dev/null),0)
CHECK_TORCHES ?= $(word $(shell echo $$(($(COMMITTED) % $(words $(BETWEEN)) + 1))),$(BETWEEN))
NEWEST_TESTS ?= $(patsubst %,adapters/torch/tests/test_%.py,accelerator_graphs autograd autograd_at_exit compiled_views \
  distributed_attention import layouts memory profiler random serialization shims stream tensor)
.PHONY: check-torches
check-torches: $(foreach minor,$(CHECK_TORCHES),$(call torch_of,$(shell uname -m),$(minor))) ## whether the shim's risky files compile for CHECK_TORCHES, by default one between the oldest and the newest
	@echo "the shim's risky files for torch $(CHECK_TORCHES), of $(BETWEEN); CHECK_TORCHES=... takes others"
	for minor in $(CHECK_TORCHES); do \
	  "$(MAKE)" -s -j "$$(nproc)" -f adapters/torch/shim.mk TORCH=target/torches/$$(uname -m)/$$minor/torch OUT=$(NATIVE_SHIMS) check; \
	done

.PHONY: test-newest-torch
test-newest-torch: ## the shim for NEWEST_TORCH, in an environment of its own, and the tests of what a torch changes most
	env -u VENV -u DIST "$(MAKE)" TORCH=$(NEWEST_TORCH) test-torch FOLDER="$(NEWEST_TESTS) $(TWO)" QUICK=

# ----------------------------------------------------------------------------------- conformance

# Which rotating sample is taken beside all of float32; another number takes another.
CI_SEED ?= 20778
CONFORMANCE := "$(PY)" -m tests.conformance

.PHONY: conformance-quick
conformance-quick: setup-dev ## one sample of every operator in float32 in every variant, beside the CPU
	$(CONFORMANCE) --dtypes float32 --sample-limit 1 $(ARGS)

.PHONY: conformance-sample
conformance-sample: setup-dev ## six samples of every operator in float32, and 500 cases of other dtypes in turn
	$(CONFORMANCE) --ci --ci-seed $(CI_SEED) $(ARGS)

.PHONY: conformance-compiled-sample
conformance-compiled-sample: setup-dev ## two samples of some operators under torch.compile, and their fake kernels against their results
	$(CONFORMANCE) --db compiled --ci --ci-seed $(CI_SEED) --sample-limit 2 $(ARGS)

.PHONY: conformance-compiled
conformance-compiled: setup-dev ## every operator under torch.compile, and its fake kernels against its results
	$(CONFORMANCE) --db compiled $(ARGS)

.PHONY: conformance
conformance: setup-dev ## the whole sweep over PyTorch's operator databases; writes docs/conformance
	$(CONFORMANCE) --report docs/conformance/host.md $(ARGS)

# ----------------------------------------------------------------------------------------- chips

# The chip of core/examples/vendor, as its users would compile it: over the headers alone.
.PHONY: example-vendor
EXAMPLE := $(DIST)/vendors/libflagos_example.so
example-vendor: $(EXAMPLE) ## the example chip as a library with its manifest, into dist/vendors/
$(EXAMPLE): $(wildcard core/examples/vendor/*) $(wildcard core/include/*.h)
	@mkdir -p $(@D)
	$(CC) -std=c11 -D_GNU_SOURCE -O3 -Wall -Wextra -fPIC -shared -fvisibility=hidden -pthread -Icore/include -o $@ \
	  $(filter %.c,$^) -lm
	cp core/examples/vendor/example.toml $(@D)

# What a chip served by a library does otherwise than the CPU, whatever its kernels are.
LIBRARY := --expected tests/conformance/expected.library.toml

# A process has one vendor, so what is compared runs again. Without kernels every result has the CPU's bits, and with
# them it comes close; the chip's random numbers are its own, so the CPU draws where it is compared.
ON_CHIP := FLAGOS_VENDOR=example FLAGOS_VENDOR_PATH="$(abspath $(DIST))/vendors"
.PHONY: test-example-chip conformance-chip-fallback
test-example-chip conformance-chip-fallback: export EXAMPLE_CHIP_KERNELS := 0
test-example-chip: setup-dev example-vendor ## the adapter's tests on the example chip, by fallback alone
	$(ON_CHIP) $(pytest) adapters/torch/tests $(TWO) $(addprefix --ignore=,$(DISTRIBUTED) $(FLAGGEMS_TESTS)) --vendor example $(ARGS)

conformance-chip-fallback: setup-dev example-vendor ## the conformance sample on the example chip, by fallback alone
	$(ON_CHIP) $(CONFORMANCE) --ci --ci-seed $(CI_SEED) $(LIBRARY)

.PHONY: conformance-chip-kernels
conformance-chip-kernels: setup-dev example-vendor ## a conformance sample on the example chip with its kernels, within tolerances
	$(ON_CHIP) FLAGOS_OP_uniform_=cpu FLAGOS_OP_bernoulli___float=cpu $(CONFORMANCE) --ci \
	  --ci-seed $(CI_SEED) --close --expected tests/conformance/expected.example.toml $(LIBRARY) $(ARGS)

# CANN's libraries, simulated: a process finds the runtime preloaded where there is no device file.
ASCEND := $(abspath $(DIST))/simulated_ascend
ON_ASCEND := FLAGOS_VENDOR=ascend LD_LIBRARY_PATH="$(ASCEND)" LD_PRELOAD="$(ASCEND)/libascendcl.so"
.PHONY: simulated-ascend
simulated-ascend: $(STAMPS)/requirements ## simulated libraries of Ascend, into dist/simulated_ascend/
	@"$(PY)" -m tests.simulated_ascend.build --out "$(ASCEND)"

# Random numbers are the chip's own, so the CPU draws where it is compared.
CONFORMANCE_ON_ASCEND := $(ON_ASCEND) FLAGOS_CONFIG=tests/conformance/ascend.toml $(CONFORMANCE) --close \
  --expected tests/conformance/expected.ascend.toml $(LIBRARY)
.PHONY: test-ascend test-ascend-slow
test-ascend: setup-dev simulated-ascend ## models, operators and failures over the simulated libraries of Ascend
	$(ON_ASCEND) $(pytest) tests/ascend --vendor ascend $(TWO) $(QUICK) $(ARGS)
test-ascend-slow: setup-dev simulated-ascend ## its collectives, its wheel in a fresh environment, and the simulated libraries' own tests
	WHEELS="$(abspath $(DIST))" $(ON_ASCEND) $(pytest) tests/ascend --vendor ascend $(TWO) $(SLOW) $(ARGS)
	$(call pytest,-simulated) tests/simulated_ascend $(TWO) $(ARGS)

.PHONY: conformance-ascend-sample
conformance-ascend-sample: setup-dev simulated-ascend ## two samples of every operator in float32, and which rows of the vendor's table they reached
	$(CONFORMANCE_ON_ASCEND) --dtypes float32 --sample-limit 2 --json "$(ASCEND)/conformance.json"
	"$(PY)" -m tests.ascend.reached "$(ASCEND)/conformance.json"

.PHONY: conformance-ascend
conformance-ascend: setup-dev simulated-ascend ## over the simulated libraries of Ascend: all samples in float32, two of every other dtype
	$(CONFORMANCE_ON_ASCEND) --dtypes float32 $(ARGS)
	$(CONFORMANCE_ON_ASCEND) --db op --sample-limit 2 $(ARGS) --dtypes \
	  bfloat16,float16,float64,complex64,complex128,bool,uint8,int8,int16,int32,int64

# MACA's runtime, simulated for the core, and forwarded to NVIDIA's for torch: neither needs a GPU to be built.
.PHONY: simulated-metax metax-forwarder
simulated-metax: $(STAMPS)/venv ## a simulated libmcruntime.so of MetaX, into dist/simulated_metax/
	@"$(PY)" -m tests.simulated_metax.build --out "$(abspath $(DIST))/simulated_metax"

metax-forwarder: $(STAMPS)/venv ## libraries by which the vendor metax runs on NVIDIA devices, into dist/metax_forwarder/
	@"$(PY)" -m tests.metax_forwarder.build --out "$(abspath $(DIST))/metax_forwarder"

.PHONY: test-metax test-metax-slow
test-metax: setup-dev ## the vendor metax over its simulated runtime
	$(pytest) tests/metax $(TWO) $(QUICK) $(ARGS)
test-metax-slow: setup-dev ## torch and collectives over it, and the simulated runtime's own tests
	$(pytest) tests/metax $(TWO) $(SLOW) $(ARGS)
	$(call pytest,-simulated) tests/simulated_metax $(TWO) $(ARGS)

# Cargo tells where it puts the library.
CUDALIB := $(DIST)/vendors/libflagos_cudalib.so
.PHONY: cuda-as-library
cuda-as-library: $(CUDALIB) ## the vendor cuda as a library with kernels of its own and its manifest, into dist/vendors/
$(CUDALIB): $(CORE_SOURCES) $(call find_sources,core/vendors/cuda) | $(STAMPS)/venv
	@mkdir -p $(@D)
	cp "$$(cargo build --release --locked -p flagos-cudalib --message-format=json | \
	  sed -n 's/.*"\([^"]*libflagos_cudalib\.so\)".*/\1/p')" $@
	cp core/vendors/cuda/with_kernels/cudalib.toml $(@D)

.PHONY: soak-vendor
soak-vendor: $(STAMPS)/venv ## eight threads over vendors' libraries, then handles and memory counted for SECONDS=600
	SOAK_SECONDS="$(or $(SECONDS),600)" cargo test --release --locked -p flagos-core --test vendor_library soak:: \
	  -- --ignored --nocapture --test-threads=1 $(ARGS)

CXX_SOURCES := $(filter %.cc %.h,$(call find_sources,adapters/torch/csrc adapters/torch/portable)) $(wildcard core/examples/vendor/*.[ch]) core/vendors/cuda/tests/conformance/simulated/*.cc \
  tests/simulated_ccl/*.cc tests/simulated_ccl/*.h tests/simulated_ascend/*.cc tests/simulated_ascend/*.h tests/simulated_ascend_rt/*.cc \
  tests/simulated_ascend_rt/include/*/*.h tests/bench/*.cc tests/simulated_metax/*.cc tests/simulated_metax/*.h \
  tests/metax_forwarder/*.cc

# ------------------------------------------------------------------------- lint, models, fuzzing

.PHONY: lint
lint: setup-dev $(STAMPS)/bindings ## rustfmt, clippy, ruff, mypy and clang-format, all without a warning
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --release --locked -- -D warnings
	"$(PY)" -m ruff check .
	"$(PY)" -m ruff format --check .
	"$(PY)" -m mypy
	"$(VENV)/bin/clang-format" --dry-run -Werror $(CXX_SOURCES)

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

.PHONY: format
format: setup-dev ## lay out all sources as `make lint` wants them
	cargo fmt --all
	"$(PY)" -m ruff check --fix .
	"$(PY)" -m ruff format .
	"$(VENV)/bin/clang-format" -i $(CXX_SOURCES)

.PHONY: loom
loom: $(STAMPS)/venv ## model-check the lock-free parts (slot swap, cross-thread free)
	RUSTFLAGS="--cfg loom" cargo test -p flagos-core -p flagos-comm --lib --release --locked --target-dir target/loom loom $(ARGS)

.PHONY: fuzz-sample
fuzz-sample: setup-dev ## the same random programs each time, on cpu and on flagos side by side
	"$(PY)" -m tests.fuzz --programs 300 $(ARGS)

FUZZ_SECONDS ?= 60
.PHONY: fuzz
fuzz: setup-dev ## as many random programs as there is time for, on cpu and on flagos side by side; ARGS="--seconds 600 --seed 1"
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

