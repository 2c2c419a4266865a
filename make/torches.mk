# The other versions of torch; included by the Makefile.

##@ Other versions of torch

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
check-torches: $(foreach minor,$(CHECK_TORCHES),$(call torch_of,$(shell uname -m),$(minor))) ## check that the shim's risky files compile for CHECK_TORCHES, by default one between the oldest and the newest
	@echo "the shim's risky files for torch $(CHECK_TORCHES), of $(BETWEEN); CHECK_TORCHES=... takes others"
	for minor in $(CHECK_TORCHES); do \
	  "$(MAKE)" -s -j "$$(nproc)" -f adapters/torch/shim.mk TORCH=target/torches/$$(uname -m)/$$minor/torch OUT=$(NATIVE_SHIMS) check; \
	done

.PHONY: test-newest-torch
test-newest-torch: ## the shim for NEWEST_TORCH, in an environment of its own, and the tests of what a torch changes most
	env -u VENV -u DIST "$(MAKE)" TORCH=$(NEWEST_TORCH) test-torch FOLDER="$(NEWEST_TESTS) $(TWO)" QUICK=
