# On a machine with NVIDIA GPUs; included by the Makefile.

##@ On a machine with NVIDIA GPUs

# Such a machine needs no cargo: what is built elsewhere is carried there in dist/, and put into an environment of its
# own, which finds the packages of the interpreter too. That interpreter has a CUDA build of torch 2.11.
GPU_PYTHON ?= $(if $(wildcard $(PY)),$(PY),python3)
GPU_SITE := $(abspath $(DIST))/site
GPU_RUN := "$(GPU_SITE)/bin/python"
GPU_WHEELS := $(addprefix $(DIST)/,$(addsuffix -*.whl,flagos flagos_metax torch_fl torch_fl_tools te_fl lightx2v_fl flagos_serving vllm_flagos sglang_flagos flagos_trainers))
CORE_CUDA_TESTS := $(DIST)/vendor_conformance_cuda
# Opened by the program, from beside it.
EXPORTED_CUDA := $(addprefix $(DIST)/libflagos_,exported_cuda.so cudalib.so)
# Where the report of `make gpu-bench` goes.
GPU_REPORTS ?= docs/benchmarks
# Processes of the conformance sweep that share the device.
GPU_JOBS ?= 8
# What runs on whatever vendor is there.
GPU_ADAPTER_TESTS ?= adapters/torch/tests tests/models

.PHONY: gpu-kit
gpu-kit: wheels $(CORE_CUDA_TESTS) $(CUDALIB) ## build what the commands below need into dist/: the wheels, the core's CUDA tests, the vendor as a library

$(CORE_CUDA_TESTS): $(CORE_SOURCES) $(call find_sources,core/vendors/cuda core/vendors/kit) | $(STAMPS)/venv
	@mkdir -p $(DIST)
	program="$$(cargo test --release --no-run --locked -p flagos-cuda --test conformance \
	  --message-format=json | sed -n 's/.*"name":"conformance".*"executable":"\([^"]*\)".*/\1/p')"; \
	cp $(foreach library,$(notdir $(EXPORTED_CUDA)),"$${program%/*}/$(library)") $(DIST); cp "$$program" $@

# Built here where there is cargo; where there is none, dist/ has to be there.
.PHONY: gpu-site
gpu-site: $(if $(shell command -v cargo 2>/dev/null),gpu-kit)
	@ls $(GPU_WHEELS) $(CORE_CUDA_TESTS) $(EXPORTED_CUDA) >/dev/null || { \
	  echo "there is no cargo here: run 'make gpu-kit' where there is one, and bring $(DIST)/" >&2; exit 1; }
	@rm -rf "$(GPU_SITE)"
	"$(GPU_PYTHON)" -m venv --without-pip "$(GPU_SITE)"
	@# Read after what is in the environment itself, so that our packages come first.
	"$(GPU_PYTHON)" -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
	  >"$$($(GPU_RUN) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/beside.pth"
	"$(GPU_PYTHON)" -m pip --python "$(GPU_SITE)/bin/python" install --quiet --no-deps --ignore-installed \
	  $(GPU_WHEELS)
	@$(GPU_RUN) -c 'import torch; assert torch.flagos.get_device_properties(0).vendor == "cuda"'

.PHONY: gpu-metax
gpu-metax: gpu-site ## on an NVIDIA machine: the vendor metax by dist/metax_forwarder/, beside the vendor cuda
	$(GPU_RUN) -m tests.gpu.metax $(ARGS)

GPU_TESTS := gpu-test-core gpu-test-programs gpu-test-adapter gpu-test-conformance
.PHONY: gpu-test $(GPU_TESTS)
gpu-test: $(GPU_TESTS) ## on an NVIDIA machine: core, programs, adapter and sampled conformance over CUDA
$(GPU_TESTS): gpu-site
gpu-test-core:
	FLAGOS_REQUIRE_CUDA=1 $(CORE_CUDA_TESTS) --test-threads=1
gpu-test-programs:
	$(GPU_RUN) -m pytest tests/gpu $(ARGS)
gpu-test-adapter:
	$(GPU_RUN) -m pytest $(GPU_ADAPTER_TESTS) --vendor cuda $(ARGS)
gpu-test-conformance:
	$(GPU_RUN) -m tests.conformance --reference cuda --device flagos --ci --ci-seed $(CI_SEED) -j $(GPU_JOBS)

.PHONY: gpu-te
gpu-te: gpu-site ## on an NVIDIA machine: TransformerEngine's operators beside torch, eager and compiled
	$(GPU_RUN) -m tests.bench.gpu.te $(ARGS)

.PHONY: gpu-bench-comm
gpu-bench-comm: gpu-site ## on a machine with several NVIDIA devices: collectives beside ProcessGroupNCCL
	$(GPU_RUN) -m tests.bench.gpu.distributed $(ARGS)

.PHONY: gpu-bench
gpu-bench: gpu-site ## on an NVIDIA machine: operators and whole models beside CUDA; saves the report
	$(GPU_RUN) -m tests.bench.gpu.submit --json $(DIST)/submit.json
	@# The report names what failed, too.
	failed=0; $(GPU_RUN) -m tests.bench.gpu.models --json $(DIST)/models.json $(ARGS) || failed=1; \
	$(GPU_RUN) -m tests.bench.gpu.report --submit $(DIST)/submit.json --models $(DIST)/models.json --folder $(GPU_REPORTS); \
	exit $$failed
