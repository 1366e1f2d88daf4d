# The same recipes for people and CI. `make help` lists them.
# CLUSTER=auto|local|kind|current, SPECULATIVE_HOME and KUBE_CONTEXT are read by
# the cluster tool (docs/local-cluster.md); everything bootstraps itself.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
# The recipes share one cluster and two cores.
.NOTPARALLEL:
.DEFAULT_GOAL := help
PYTHON ?= python3
TOOL := $(PYTHON) -m e2e.cluster
BIN := .venv/bin
# Containers often forbid Python to keep what it compiled: half of the time that tests take.
COMPILED := env -u PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX=$(CURDIR)/build/pycache
SOURCES := crds operator gateway worker cli e2e tests bench
GENERATED := crds/speculativedeployments.yaml charts/speculative-operator/files/crd.yaml docs/crd.md

.PHONY: help
help:  ## what there is
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

.venv/synced: uv.lock pyproject.toml $(wildcard */pyproject.toml)
	@uv="$$($(TOOL) uv)" && "$$uv" sync --quiet --frozen && touch $@

# ---- the cluster

.PHONY: cluster-up cluster-down demo-down cluster-status images model vllm-pod
cluster-up:  ## a Kubernetes with a Ready node
	$(TOOL) up

cluster-down:  ## end it, and leave nothing behind but caches
	$(TOOL) down

demo-down: cluster-down  ## the same

cluster-status:  ## what of it runs
	$(TOOL) status

images: cluster-up  ## build what changed, and load it into the cluster
	$(TOOL) images

model: images  ## SmolLM2-135M and the bad draft, on the node
	$(TOOL) model

vllm-pod: model  ## one vLLM pod by hand: ready, and one completion
	$(TOOL) vllm-pod

# ---- the main job

.PHONY: demo
demo: .venv/synced  ## set-up, then the whole story
	$(BIN)/python -m e2e.demo

# ---- checks and tests

.PHONY: check generate golden test-fast test-server test-vllm e2e test summary
check: .venv/synced  ## format, lint, types, import rules, generated files
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/mypy -p e2e.cluster -p bench
	$(COMPILED) $(BIN)/lint-imports
	$(COMPILED) $(BIN)/python -m speculative_api --check $(GENERATED)

generate: .venv/synced  ## write the CRD and its reference
	$(BIN)/python -m speculative_api $(GENERATED)

golden: .venv/synced  ## write the golden files; review the diff
	$(BIN)/python -m tests.golden

test-fast: .venv/synced  ## no cluster, about a minute on two cores
	$(COMPILED) $(BIN)/pytest tests -m "not cluster and not slow and not soak" -q -n auto --dist worksteal

test-server: .venv/synced cluster-up  ## every test against a real API server, and the slow ones
	$(COMPILED) $(BIN)/pytest tests -m "(cluster or slow) and not vllm" -n 2 --dist loadfile

test-vllm: .venv/synced images  ## what is rendered, read by five releases' own configuration classes
	$(TOOL) engines
	$(COMPILED) $(BIN)/pytest tests -m vllm

e2e: .venv/synced images  ## rollouts and kills on a real cluster, with simulated engines
	$(TOOL) groups
	$(TOOL) gateway
	$(COMPILED) $(BIN)/pytest e2e -m "not vllm"

test: check test-fast test-server e2e test-vllm demo summary  ## set-up and every test there is

summary:
	@echo "passed: check, test-fast, test-server, e2e, test-vllm, demo (real vLLM)"
	@echo "not run here: CLUSTER=current (needs a context of yours); measurements, by hand on a quiet machine:"
	@echo "  make soak-properties soak-gateway bench-analysis bench-drift bench-abort bench-gateway bench-gateway-filters bench-scale bench-takeover bench-simulated-pod bench-scrape bench-adaptive"
	@if docker version >/dev/null 2>&1; then echo "  a Docker engine answers: CLUSTER=kind make demo runs on it"; \
	  else echo "  CLUSTER=kind (no Docker engine answers here; its commands are tested)"; fi
	@if command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L >/dev/null 2>&1; then \
	  echo "  the GPU here (the worker image for GPUs is built from the vLLM image, by hand)"; \
	  else echo "  anything on a GPU (none here): vLLM runs on the CPU, nvidia.com/gpu is a number"; fi

# ---- long runs, never part of `make test`

PROPERTIES := $(shell grep -rl "^from hypothesis" tests --include=test_*.py)
.PHONY: soak-properties soak-gateway
soak-gateway: .venv/synced  ## answers of minutes through the real Envoy
	$(COMPILED) $(BIN)/pytest tests/gateway -m soak

soak-properties: .venv/synced  ## the property tests over new random worlds, ROUNDS times (10)
	for round in $$(seq $(or $(ROUNDS),10)); do \
	  HYPOTHESIS_PROFILE=explore $(BIN)/pytest -q $(PROPERTIES) -k "not on_server" || exit 1; done

.PHONY: bench-analysis bench-simulated-pod bench-scrape bench-adaptive bench-abort bench-gateway
bench-analysis: .venv/synced  ## simulated rollouts against the shipped tests; ARGS=--quick: 2 minutes
	nice -n 15 $(BIN)/python -m bench.analysis $(ARGS)

.PHONY: bench-drift
bench-drift: .venv/synced  ## how often drift is called, and how soon; ARGS="--runs 20"
	nice -n 15 $(BIN)/python -m bench.drift $(ARGS)

bench-abort: .venv/synced  ## from 200 aborts to weight 0 in every Envoy; ARGS=--cluster on the local cluster
	$(BIN)/python -m bench.abort $(ARGS)

bench-gateway: .venv/synced  ## the gateway beside vllm-router and a plain proxy; ARGS=--quick
	$(BIN)/python -m bench.gateway $(ARGS)

.PHONY: bench-gateway-filters
bench-gateway-filters: .venv/synced  ## Envoy's CPU time for each part of the gateway; ARGS=--quick
	$(BIN)/python -m bench.gateway_filters $(ARGS)

bench-simulated-pod: .venv/synced  ## memory and start of a pod with a simulated engine
	$(BIN)/python -m bench.simulated_pod

bench-scrape: .venv/synced  ## processor time of one look: vLLM's page, the worker's digest and metrics
	nice -n 15 $(BIN)/python -m bench.scrape $(ARGS)

# ARGS="--quick --streams 1 --only useless"; results in build/bench-adaptive.json
bench-adaptive: .venv/synced  ## adaptive against fixed draft lengths on real vLLM; hours on a CPU
	$(BIN)/python -m bench.adaptive_here $(ARGS)

.PHONY: bench-scale
# ARGS=--quick: a hundred; results in build/bench-scale.json
bench-scale: .venv/synced  ## a thousand resources beside a bare loop, on an API server of its own
	nice -n 10 $(BIN)/python -m bench.scale $(ARGS)

.PHONY: bench-takeover
bench-takeover: .venv/synced  ## from SIGTERM or kill -9 to the standby's first write; ARGS="--rounds 20"
	$(BIN)/python -m bench.takeover $(ARGS)

.PHONY: soak-faults
# MINUTES=30 SEED=1; figures in build/soak-faults.json
soak-faults: .venv/synced  ## one fault a minute under load, then the same edits without any; MINUTES=30
	$(BIN)/python -m bench.soak_faults
