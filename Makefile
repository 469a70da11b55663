# Everything a person runs. `make help` lists it.
CARGO ?= cargo
PYTHON ?= python3
export PYTHON SUITE PEERS ROWS THREADS

.PHONY: help demo test check guard bench publish models build clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile | expand -t 18

demo: ## read the picture of a line of text with PP-OCRv4, print the text and the compile report
	@scripts/prepare build python
	@$(PYTHON) datasets/fetch.py ppocr_v4_rec
	$(CARGO) run --release -- demo

build: ## the release build
	@scripts/prepare build
	$(CARGO) build --release

test: ## run everything: unit tests, operators, networks, bad input, AArch64 under emulation
	@scripts/prepare build test
	@scripts/optionally $(PYTHON) datasets/fetch.py
	$(CARGO) test --all-targets
	$(CARGO) test --doc

check: ## formatting, lints, the tests of the benchmark, and that README shows benches/results.json
	$(CARGO) fmt --check
	$(CARGO) clippy --all-targets -- -D warnings
	@! command -v $(PYTHON) >/dev/null || $(PYTHON) -m unittest discover -q benches/tests
	@! command -v $(PYTHON) >/dev/null || $(PYTHON) benches/publish.py --check

guard: ## count instructions of kernels and of compiling with valgrind, against benches/guard.json
	@scripts/prepare build
	$(CARGO) build
	@$(PYTHON) benches/guard.py

models: ## get the six pretrained models from their Python packages
	@scripts/prepare python
	@$(PYTHON) datasets/fetch.py

bench: ## measure against the peers in turn; writes target/bench/report.html [SUITE=networks PEERS=onnxruntime,openvino ROWS=resnet THREADS=1]
	@scripts/prepare build bench
	@$(PYTHON) benches/run.py --check
	$(CARGO) build --release
	@scripts/optionally $(PYTHON) datasets/fetch.py
	@$(PYTHON) benches/run.py

publish: ## make target/bench/report.json the results in README
	@$(PYTHON) benches/publish.py target/bench/report.json

clean: ## remove what was built
	$(CARGO) clean
