# Callsheet's commands. `make help` lists them; each installs what it needs.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DEMO   := $(VENV)/.demo
CACHE  := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/callsheet

# The tests start hundreds of processes. Without bytecode files, each would compile everything it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-long cluster check format docs bench clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Builds the environment, again when the dependencies change. $(1): extras to install; $(2): what they are, in words;
# $(3): whether other checkouts may reuse them (tools/packages.py).
define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Callsheet needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Try: make PYTHON=python3.11 ..."; exit 1; }
	@test -x $(BIN)/python && rm -f $(VENV)/.new || { $(PYTHON) -m venv $(VENV) && touch $(VENV)/.new; } || { echo "$(PYTHON) cannot create virtual environments (on Debian: apt-get install python3-venv)"; exit 1; }
	@echo "installing Callsheet with $(2) into $(VENV) ..."
	@$(3) && $(PYTHON) -m tools.packages take $(VENV) || true
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt --editable '.[$(1)]'
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true # with all cores, where pip uses one
	@$(3) && rm $(VENV)/.new 2>/dev/null && $(PYTHON) -m tools.packages keep $(VENV) || true # never packages that you installed by hand
	@touch $@
endef

$(STAMP): pyproject.toml constraints.txt
	$(call install,dev,its development tools and PyTorch (some gigabytes),true)

# The demo needs no development tools.
$(DEMO): pyproject.toml constraints.txt
	$(call install,torch,PyTorch (some gigabytes),false)

demo: $(if $(wildcard $(STAMP)),$(STAMP),$(DEMO)) ## Train a policy with a learner, two actors and an evaluator
	@$(BIN)/callsheet train ppo --env CartPole-v1 --actors 2 --stop-return 475 --evaluate-every 1 --name cartpole

test: check ## Run every check and every test, including those on a real Kubernetes cluster
	$(BIN)/python -m pytest -n 5 --maxschedchunk 1 -m "not exclusive and not cluster"
	$(BIN)/python -m pytest -m "exclusive and not cluster"
	@if [ "$$(id -u)" = 0 ] && [ -z "$$CALLSHEET_TEST_KUBECONFIG" ]; then $(BIN)/python -m tools.cluster build; fi
	$(BIN)/python -m pytest -n 4 --dist loadgroup -m "cluster and not exclusive"
	$(BIN)/python -m pytest -m "cluster and exclusive"

test-long: $(STAMP) ## Run every cell of the fault matrix, the soak test and the fuzzer; takes hours
	$(BIN)/python -m tools.faults run
	$(BIN)/python -m tools.faults soak --minutes 60 --result tools/faults/soak.json
	$(BIN)/python -m tools.faults page
	$(BIN)/python -m tools.fuzz --seed 13 --cases 250000 --minutes 4

cluster: ## Start a real two-node Kubernetes cluster on this machine (as root)
	$(PYTHON) -m tools.cluster up --nodes 2

check: $(STAMP) ## Check style, formatting, types and layers; takes less than a minute
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --cache-dir "$(CACHE)/mypy"
	$(BIN)/lint-imports --no-cache

format: $(STAMP) ## Format the code and fix what can be fixed automatically
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP) ## Regenerate the reference pages
	$(BIN)/python tools/reference.py

bench: $(STAMP) ## Compare the local backend with a plain loop of processes
	$(BIN)/python benchmarks/local_backend.py

clean: ## Remove the environment and caches, but not your runs
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
