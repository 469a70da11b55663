# Everything a person runs. `make help` lists it.
CARGO ?= cargo
PYTHON ?= python3
export PYTHON SUITE PEERS ROWS THREADS

.PHONY: help demo test test-python test-torch test-cluster wheel fuzz check check-crates check-aarch64 mutants guard digest bench shapes model mca conformance publish book models build install clean

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## /  make \1\t/p' Makefile | expand -t 22

demo: ## read the picture of a line of text with PP-OCRv4, print the text and the compile report
	@scripts/prepare build python
	@$(PYTHON) datasets/fetch.py ppocr_v4_rec
	$(CARGO) run --release -- demo

build: ## the release build
	@scripts/prepare build
	$(CARGO) build --release

install: ## the C interface, the runtime for linked models and a file for pkg-config, below PREFIX [PREFIX=/usr/local DESTDIR=]
	@scripts/prepare build
	$(CARGO) build --release --package tilewright-capi
	$(CARGO) rustc --release --package tilewright-runtime --lib --crate-type staticlib
	scripts/install "$(or $(PREFIX),/usr/local)" "$(DESTDIR)" "$${CARGO_TARGET_DIR:-target}/release"

test: ## run everything: unit tests, operators, networks, bad input, AArch64 under emulation
	@scripts/prepare build test
	@scripts/optionally $(PYTHON) datasets/fetch.py
	@rm -f target/skipped-tests
	$(CARGO) test --all-targets && $(CARGO) test --doc; status=$$?; scripts/skipped; exit $$status

test-python: ## run the tests of the Python package, in target/python-venv
	@scripts/prepare build venv
	@scripts/python-tests

test-torch: ## run the tests of torch.compile with the backend of tilewright; installs PyTorch into target/torch-venv
	@scripts/prepare build venv
	@scripts/torch-tests

test-cluster: ## run the tests of Ray, Dask and Spark on clusters of two nodes; installs them into target/cluster-venv
	@scripts/prepare build venv
	@scripts/cluster-tests

wheel: ## build the wheel of the Python package into target/wheel, and check it
	@scripts/prepare build venv
	@scripts/wheel

fuzz: ## COUNT mutated and generated inputs through each reader, and through compile and run; failing ones go to target/fuzz [COUNT=10000 SEED=1 TARGET=onnx_run INPUT=FILE]
	@scripts/prepare build
	TILEWRIGHT_FUZZ_COUNT=$(or $(COUNT),10000) TILEWRIGHT_FUZZ_SEED=$(SEED) TILEWRIGHT_FUZZ_TARGET=$(TARGET) \
		TILEWRIGHT_FUZZ_INPUT=$(abspath $(INPUT)) $(CARGO) test --test fuzz no_input_does_harm -- --nocapture

# The Python package is a member like others here: it builds without Python.
check: ## formatting, lints, documentation, the tests of the benchmark, packages, licences, and that the pages show benches/results.json
	$(CARGO) fmt --all --check
	$(CARGO) clippy --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --quiet
	@scripts/crates
	@if command -v $(PYTHON) >/dev/null || [ "$${CI:-}" = true ]; then \
		$(PYTHON) -m unittest discover -q benches/tests && $(PYTHON) benches/publish.py --check && $(PYTHON) scripts/notices.py --check; fi
	@scripts/deny

check-crates: ## package all crates and build them from their packages, as `cargo publish --dry-run` does
	@scripts/prepare build
	@scripts/crates --build

check-aarch64: ## type-check the crate for AArch64, in target/check-aarch64
	@scripts/prepare build test aarch64
	RUSTFLAGS="-D warnings" $(CARGO) check --target aarch64-unknown-linux-gnu --target-dir target/check-aarch64

mutants: ## change the source at COUNT places chosen by SEED; print the changes that no quick test notices [SEED=1 COUNT=60]
	@$(PYTHON) tests/mutants/run.py --seed $(or $(SEED),1) --count $(or $(COUNT),60)

guard: ## count instructions of kernels and of compiling with valgrind, against benches/guard.json
	@scripts/prepare build
	$(CARGO) build
	@$(PYTHON) benches/guard.py

digest: ## checksums of the modules of all fixtures on all targets; changes that only move code keep them
	$(CARGO) run --quiet --example digest

models: ## get the six pretrained models from their Python packages
	@scripts/prepare python
	@$(PYTHON) datasets/fetch.py

ifneq ($(filter shapes model,$(SUITE)),)
bench: $(SUITE)
else
bench: ## measure against the peers in turn; writes target/bench/report.html [SUITE=networks PEERS=onnxruntime,openvino ROWS=resnet THREADS=1; SUITE=shapes SUITE=model]
	@scripts/prepare build bench
	@$(PYTHON) benches/run.py --check
	$(CARGO) build --release
	@scripts/optionally $(PYTHON) datasets/fetch.py
	@$(PYTHON) benches/run.py
endif

shapes: ## as bench SUITE=shapes: dynamic dimensions beside ONNX Runtime: new lengths, memory, steps of decoding
	@scripts/prepare build bench
	$(CARGO) build --release --bins --example bindings
	@$(PYTHON) benches/shapes.py

model: ## as bench SUITE=model: predicted beside measured time of the kernels of networks and loop programs
	@scripts/prepare build bench
	$(CARGO) build --release
	@$(PYTHON) benches/model.py $(ROWS)

mca: ## judge the inner loops of AArch64 kernels by llvm-mca, for four cores: cycles beside the port limit [ROWS=gemm]
	@scripts/prepare build mca
	$(CARGO) build --release
	@$(PYTHON) benches/mca.py $(ROWS)

conformance: ## run ONNX's backend suite and print how many cases of each group pass, and why others fail [CASES=lstm]; or RANDOM networks against ONNX Runtime [RANDOM=1000 SEED=3]
	@scripts/prepare build python
	$(CARGO) build --release
	@$(if $(RANDOM),$(PYTHON) tests/conformance/random_networks.py --count $(RANDOM) --seed $(or $(SEED),1),$(PYTHON) tests/conformance/run.py $(if $(CASES),--cases $(CASES)))

publish: ## make target/bench/report.json the results of README and docs/performance.md
	@$(PYTHON) benches/publish.py target/bench/report.json

book: ## build the pages of docs/ into target/book with mdBook
	@command -v mdbook >/dev/null || { echo "book: mdBook is not here: cargo install mdbook" >&2; exit 1; }
	mdbook build docs

clean: ## remove what was built
	$(CARGO) clean
