# The sweep over PyTorch's operator databases; included by the Makefile.

##@ Conformance

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
