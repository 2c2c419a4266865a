# Chips, by libraries that are simulated here; included by the Makefile.

##@ Chips

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
	@"$(PY)" -m core.vendors.ascend.simulated.build --out "$(ASCEND)"

# Random numbers are the chip's own, so the CPU draws where it is compared.
CONFORMANCE_ON_ASCEND := $(ON_ASCEND) FLAGOS_CONFIG=tests/conformance/ascend.toml $(CONFORMANCE) --close \
  --expected tests/conformance/expected.ascend.toml $(LIBRARY)
# Those with triton-ascend need no vendor: test-ascend-triton.
ASCEND_TESTS := core/vendors/ascend/tests adapters/torch/tests/test_automatic_graphs.py --ignore=core/vendors/ascend/tests/triton_ascend --vendor ascend
.PHONY: test-ascend test-ascend-slow
test-ascend: setup-dev simulated-ascend ## models, operators and failures over the simulated libraries of Ascend
	$(ON_ASCEND) $(pytest) $(ASCEND_TESTS) $(TWO) $(QUICK) $(ARGS)
test-ascend-slow: setup-dev simulated-ascend ## collectives of Ascend, its wheel in a fresh environment, and the simulated libraries' own tests
	WHEELS="$(abspath $(DIST))" $(ON_ASCEND) $(pytest) $(ASCEND_TESTS) $(TWO) $(SLOW) $(ARGS)
	$(call pytest,-simulated) core/vendors/ascend/simulated $(TWO) $(ARGS)

.PHONY: conformance-ascend-sample
conformance-ascend-sample: setup-dev simulated-ascend ## two samples of every operator in float32, and which rows of the vendor's table they reached
	$(CONFORMANCE_ON_ASCEND) --dtypes float32 --sample-limit 2 --json "$(ASCEND)/conformance.json"
	"$(PY)" -m core.vendors.ascend.tests.reached "$(ASCEND)/conformance.json"

.PHONY: conformance-ascend
conformance-ascend: setup-dev simulated-ascend ## all samples in float32 and two of every other dtype, over the simulated libraries of Ascend
	$(CONFORMANCE_ON_ASCEND) --dtypes float32 $(ARGS)
	$(CONFORMANCE_ON_ASCEND) --db op --sample-limit 2 $(ARGS) --dtypes \
	  bfloat16,float16,float64,complex64,complex128,bool,uint8,int8,int16,int32,int64

# MACA's runtime, simulated for the core, and forwarded to NVIDIA's for torch: neither needs a GPU to be built.
.PHONY: simulated-metax metax-forwarder
simulated-metax: $(STAMPS)/venv ## a simulated libmcruntime.so of MetaX, into dist/simulated_metax/
	@"$(PY)" -m core.vendors.metax.simulated.build --out "$(abspath $(DIST))/simulated_metax"

metax-forwarder: $(STAMPS)/venv ## libraries by which the vendor metax runs on NVIDIA devices, into dist/metax_forwarder/
	@"$(PY)" -m core.vendors.metax.forwarder.build --out "$(abspath $(DIST))/metax_forwarder"

.PHONY: test-metax test-metax-slow
test-metax: setup-dev ## the vendor metax over its simulated runtime
	$(pytest) core/vendors/metax/tests $(TWO) $(QUICK) $(ARGS)
test-metax-slow: setup-dev ## torch and collectives over the simulated runtime of MetaX, and the runtime's own tests
	$(pytest) core/vendors/metax/tests $(TWO) $(SLOW) $(ARGS)
	$(call pytest,-simulated) core/vendors/metax/simulated $(TWO) $(ARGS)

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
