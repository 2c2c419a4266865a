# The tests, in two circles; included by the Makefile.
#
# `make test` is the inner circle: whether a change is sound, in at most 20 minutes on a fresh clone with 2 cores. `make
# test-all` adds the outer one: everything that needs no accelerator. `.ci/run` runs the inner circle, and of the outer one
# what a change touches and a share of the rest in turn. tests/circles/parts.toml lists the parts of both, each of which is a
# target here that can be run alone: `make test-te ARGS="-k gemm"`.

##@ Parts of the tests

# Some parts instead of the whole circle: make test PARTS="lint test-te".
PARTS ?=
CIRCLES := "$(PY)" -m tests.circles

.PHONY: ci-outer
ci-outer: setup-dev ## run the parts of the outer circle that CI runs with this commit
	@$(CIRCLES) ci

.PHONY: ci-plan
ci-plan: setup-dev ## list the parts of the outer circle that CI runs with this commit, and when the others last ran
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
FLAGGEMS_TESTS := adapters/torch/tests/flaggems adapters/torch-tools/tests/flaggems \
  $(addsuffix /tests/test_flaggems.py,$(addprefix adapters/,vllm sglang))
QUICK_PARTS := $(addprefix test-,python torch distributed te lightx2v vllm-seam sglang-seam trainers-seam whole)
SLOW_PARTS := $(addsuffix -slow,$(addprefix test-,torch whole))
.PHONY: $(QUICK_PARTS) $(SLOW_PARTS) test-models
test-python: ## the wheel flagos: native module, Python API, command line
test-torch: ## the device in torch, without the collectives, and the tools around it
test-torch-slow: ## slow tests of the device in torch: compilers, searches by `flagos bisect`, records
test-distributed: ## the backend of torch.distributed, with ranks as processes
test-te: ## the TransformerEngine adapter
test-lightx2v: ## the LightX2V adapter
test-vllm-seam: ## the vLLM adapter over a double of vLLM's plugin seam
test-sglang-seam: ## the SGLang adapter over a double of SGLang's platform seam, and what adapters of engines share
test-trainers-seam: ## the adapter of trainers over doubles of their choice of a device, and its operators
test-models: ## whole models, a part of test-whole and test-whole-slow
test-whole: ## tests/: whole models, launches, the fuzzer, the conformance harness, the layout
test-whole-slow: ## slow tests of tests/: the tools for GPUs, pages that are followed
test-python: FOLDER := python/tests
test-torch test-torch-slow: FOLDER := adapters/torch/tests adapters/torch-tools/tests $(TWO) $(addprefix --ignore=,$(DISTRIBUTED) $(FLAGGEMS_TESTS))
test-distributed: FOLDER := $(DISTRIBUTED)
test-te: FOLDER := adapters/te/tests $(TWO)
test-lightx2v: FOLDER := adapters/lightx2v/tests tests/examples/test_lightx2v.py $(TWO)
test-vllm-seam: FOLDER := adapters/vllm/tests $(TWO) $(addprefix --ignore=,$(FLAGGEMS_TESTS))
test-sglang-seam: FOLDER := adapters/sglang/tests adapters/serving/tests -n 2 $(addprefix --ignore=,$(FLAGGEMS_TESTS))
test-trainers-seam: FOLDER := adapters/trainers/tests $(TWO)
test-models: FOLDER := tests/models $(TWO)
test-whole test-whole-slow: FOLDER := tests $(TWO) --ignore=tests/site
test-whole-slow: FOLDER += --ignore=tests/examples
$(QUICK_PARTS): setup-dev
	$(pytest) $(FOLDER) $(QUICK) $(ARGS)
$(SLOW_PARTS): setup-dev
	$(pytest) $(FOLDER) $(SLOW) $(ARGS)
test-models: setup-dev
	$(pytest) $(FOLDER) $(ARGS)

.PHONY: test-examples
test-examples: setup-dev ## the programs of examples/, beside the output that docs/examples.md shows
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
	$(pytest) core/vendors/ascend/tests/triton_ascend $(TWO) $(ARGS)

# vLLM and what it needs are a hundred packages. Each test starts it.
VLLM_FORMS := $(patsubst %,adapters/vllm/tests/test_real_%.py,forms graphs)
.PHONY: test-vllm test-vllm-forms
test-vllm test-vllm-forms: export VLLM_PATH := $(VLLM)
test-vllm: setup-dev $(STAMPS)/vllm ## vLLM itself with tiny models on the host vendor, beside transformers on the CPU
	$(pytest) adapters/vllm/tests tests/examples/test_vllm.py $(addprefix --ignore=,$(VLLM_FORMS)) -m "vllm or slow" $(ARGS)
test-vllm-forms: setup-dev $(STAMPS)/vllm ## vLLM with weights of integers, latent attention, several engines and graphs of pieces
	$(pytest) $(VLLM_FORMS) -m vllm $(ARGS)

# SGLang and what it needs are 77 packages; a start of its engine takes half a minute.
.PHONY: test-sglang
test-sglang: export SGLANG_PATH := $(SGLANG)
test-sglang: setup-dev $(STAMPS)/sglang ## SGLang itself with tiny models on the host vendor, beside transformers on the CPU
	$(pytest) adapters/sglang/tests adapters/serving/tests -m "sglang or slow" $(ARGS)

.PHONY: vllm-diff vllm-facts
vllm-diff: setup-dev ## what a release of vLLM changes of the adapter's seam: make vllm-diff RELEASE=0.33.0
	@[ -n "$(RELEASE)" ] || { echo "RELEASE is not set: make vllm-diff RELEASE=0.33.0" >&2; exit 2; }
	@"$(PY)" -m adapters.vllm.tests.facts "$(RELEASE)" $(ARGS)

vllm-facts: setup-dev ## read the facts of the releases of vLLM that flagos serves again, after a change of the adapter
	@for release in $$("$(PY)" -c "from vllm_flagos import releases as r; print(*(one.tried for one in r.RELEASES))"); do \
	  "$(PY)" -m adapters.vllm.tests.facts $$release --keep; done

# MEGATRON_PATH and TORCHTITAN_PATH name checkouts: neither is on PyPI as it is tested.
.PHONY: test-trainers
test-trainers: export TRAINERS_PATH := $(TRAINERS)
test-trainers: setup-dev $(STAMPS)/trainers ## DeepSpeed, Megatron-LM-FL, torchtitan and TRL on two ranks of the host, beside the CPU
	$(pytest) adapters/trainers/tests/long_*.py $(ARGS)

# DEEPSPEED_PATH names a checkout: DeepSpeed's packages have no tests.
DEEPSPEEDS := runtime/zero v1/zero v1/moe
.PHONY: test-deepspeed
test-deepspeed: export TRAINERS_PATH := $(TRAINERS)
test-deepspeed: setup-dev $(STAMPS)/trainers ## DeepSpeed's own unit tests on flagos beside the CPU: make test-deepspeed ARGS="--most 1" DEEPSPEEDS="v1/zero"
	"$(PY)" -m adapters.trainers.tests.deepspeeds $(ARGS) $(DEEPSPEEDS)

.PHONY: test-torchs-distributed
test-torchs-distributed: setup-dev ## torch's own tests of torch.distributed, with the backend flagos
	"$(PY)" -m adapters.torch.tests.torchs_distributed --alone $(ARGS)

.PHONY: test-comm
test-comm: setup-dev ## 4 and 8 ranks, torchrun, a group made a hundred times; torch's own tests beside gloo
	$(pytest) adapters/torch/tests/long_distributed.py core/vendors/ascend/tests/long_collectives.py $(ARGS)
	$(call pytest,-slow) $(DISTRIBUTED) $(SLOW)
	"$(PY)" -m adapters.torch.tests.torchs_distributed

.PHONY: test-bisect
test-bisect: setup-dev ## `flagos bisect` with several causes, hangs, interrupted searches
	$(pytest) adapters/torch-tools/tests/bisect/long_bisect.py tests/long_bisect_page.py $(TWO) $(ARGS)

.PHONY: test-accuracy
test-accuracy: setup-dev ## `flagos accuracy`: wrong kernels found, ten models without a false alarm, bad programs
	$(pytest) adapters/torch-tools/tests/accuracy/long_accuracy.py tests/long_accuracy_page.py -n 2 $(ARGS)

.PHONY: test-zoo
test-zoo: setup-dev ## every architecture of transformers that its configuration makes small, beside the CPU
	"$(PY)" -m tests.models.zoo $(ARGS)
