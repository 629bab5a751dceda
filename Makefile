# CI runs the stages of .ci/run, which are also "make ci"; targets marked "by hand" are no part of it. "make" lists all.
.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
export GOWORK := off

tool := go tool -modfile=tools/go.mod
# Folders with .proto files: import roots, one program run for all.
protos := examples/hello/api examples/stock/api
# Packages with wire injectors.
injectors := ./examples/wire
# Committed modules, the root first.
modules := $(sort $(dir $(shell git ls-files 'go.mod' '*/go.mod')))

.PHONY: help all quick test race lint fmt vet build bench gen docs docs-check tidy tidy-check golden cover vuln ci

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /\1\t/' | sort | column -t -s $$'\t'

all: lint test ## lint and test

quick: ## build, vet and unit tests, under three minutes
	@bash .ci/run quick

ci: ## everything that CI runs
	@bash .ci/run

test: ## unit tests of the core
	go test ./...

race: ## unit tests of every module, with the race detector and in random order
	for dir in $(modules); do go test -C "$$dir" -race -shuffle=on ./...; done

build: ## build every module
	for dir in $(modules); do go build -C "$$dir" ./...; done

vet: ## go vet in every module
	for dir in $(modules); do go vet -C "$$dir" ./...; done

lint: ## golangci-lint in every module
	@bash .ci/run lint

fmt: ## by hand: format all Go files
	$(tool) golangci-lint fmt ./...

bench: ## by hand: beside raw grpc-go and Kratos, in interleaved rounds; then the core's own benchmarks
	go run -C bench . -rounds 500
	go test -run '^$$' -bench . -benchmem ./...

gen: ## generated code, from .proto files and wire's injectors
	go run -C tools ./protogen $(protos)
	$(tool) wire gen $(injectors)

docs: ## fill the fenced blocks of Markdown files from regions of tested code
	go run -C tools ./snippets

docs-check: ## fail if a fenced block differs from its region
	go run -C tools ./snippets -check

tidy: ## go mod tidy in every module
	for dir in $(modules); do go mod tidy -C "$$dir"; done

tidy-check: ## fail if a go.mod or go.sum is not tidy
	for dir in $(modules); do echo "$$dir"; (cd "$$dir" && go mod tidy -diff); done

golden: ## by hand: write golden files anew; needs a clean tree, so that the change is seen alone
	@test -z "$$(git status --porcelain)" || { echo "the tree is not clean: commit first, then review what golden changes"; exit 1; }
	go test ./internal/arch -update
	git diff --stat

cover: ## by hand: test coverage, a line a package
	go test -cover ./...

vuln: ## by hand: known vulnerabilities in what the core uses; needs the vulnerability database
	$(tool) govulncheck ./...
