PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test fast-tests test-slow oracle test-embedded lint format bench docs check-wheel tables networks tables-operators table-robustness table-parity table-peers table-kernels clean

demo: .stamp-dev
	$(BIN)/tvm-xengine train lenet --data digits --budget-ratio 0.5

# Lint takes a core for a minute; meanwhile the other one compiles what each worker would else compile.
test: .stamp-dev
	$(MAKE) -j 2 lint fast-tests

fast-tests: compiled-searches
	$(BIN)/python -m pytest -n 2 --dist loadfile

test-slow: .stamp-dev
	$(BIN)/python -m pytest -m slow --hypothesis-profile many
	$(BIN)/python -m pytest -m 'hypothesis and not slow and not gpu' --hypothesis-profile many

# Packages in C on emulated processors; a missing compiler or emulator is a visible skip.
test-embedded: .stamp-embedded
	$(BIN)/python -m pytest tests/aot -m 'slow or not slow'

# Judges four samples of each operator in PyTorch's databases, and ONNX's node tests. Takes about an
# hour, may be interrupted, goes on where it was. Without `--samples` every sample is judged.
tables-operators: .stamp-dev
	$(BIN)/python -m tests.databases.torch_walk --samples 4 --table docs/operators/torch.md
	$(BIN)/python -m tests.databases.onnx_walk

# Damages files of every kind, interrupts every long command, and loses ranks of runs over two; takes hours, goes on where it was.
table-robustness: .stamp-dev
	$(BIN)/python -m tests.robustness

# Exported C on every target against PyTorch; goes on where it was.
table-parity: .stamp-dev
	$(BIN)/python -m benchmarks.embedded.parity.compare

# Generated kernels in C beside kernels written by hand.
table-kernels: .stamp-dev
	$(BIN)/python -m benchmarks.embedded.kernels.compare

# Exported C beside other projects.
table-peers: .stamp-dev
	$(BIN)/python -m benchmarks.embedded.peers.compare

oracle: .stamp-dev
	$(BIN)/python -m pytest tests/solvers/test_oracle.py -m oracle

bench: .stamp-dev
	$(BIN)/python -m pytest benchmarks -s -m 'slow or not slow'

tables: .stamp-dev
	$(BIN)/python -m benchmarks.tables

networks: .stamp-networks
	$(BIN)/python -m tests.networks

# The site, in build/site. Warnings and broken internal links are errors.
docs: .stamp-dev
	$(BIN)/sphinx-build -W --keep-going -q -b html docs build/site
	@echo "open build/site/index.html"

# Builds wheel and sdist, and tries them in fresh environments on each Python that is here.
check-wheel: .stamp-dev
	$(BIN)/python -m tests.check_wheel

lint: .stamp-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

compiled-searches: .stamp-dev
	$(BIN)/python -m tests.compile_searches

format: .stamp-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# pip compiles all modules in one process. A few are for newer versions of Python, and fail.
.stamp-dev: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --no-compile --editable '.[dev]'
	$(BIN)/python -m compileall -q -j 0 .venv/lib >/dev/null || true
	touch $@

.stamp-embedded: .stamp-dev
	$(BIN)/pip install --quiet --editable '.[dev,embedded]'
	touch $@

.stamp-networks: .stamp-dev
	$(BIN)/pip install --quiet --editable '.[dev,networks]'
	touch $@

clean:
	rm -rf .venv .stamp-* build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
