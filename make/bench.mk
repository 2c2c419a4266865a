# Benchmarks; included by the Makefile.

##@ Benchmarks

.PHONY: bench-te
bench-te: setup ## calls of TransformerEngine's operators, beside TransformerEngine-FL where TEFL_PATH names it
	"$(PY)" -m tests.bench.te_calls $(ARGS)

.PHONY: bench-ascend
bench-ascend: setup simulated-ascend ## what a call of CANN costs on the host, with phases that compute nothing
	$(ON_ASCEND) SIMULATED_ASCEND_COMPUTE=0 SIMULATED_ASCEND_WORKSPACE=0 "$(PY)" -m tests.bench.vendor_library $(ARGS)
	$(ON_ASCEND) SIMULATED_ASCEND_COMPUTE=0 SIMULATED_ASCEND_WORKSPACE=0 "$(PY)" -m tests.bench.queue $(if $(findstring --json,$(ARGS)),--json)

.PHONY: bench-vendor-library
bench-vendor-library: setup example-vendor ## what a call of the example chip's kernel costs, part by part
	$(ON_CHIP) "$(PY)" -m tests.bench.vendor_library $(ARGS)

.PHONY: bench-comm
bench-comm: setup ## collectives of 2, 4 and 8 processes beside gloo; ARGS=--write saves the report
	"$(PY)" -m tests.bench.collectives $(ARGS)
