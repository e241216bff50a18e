# Everything a developer types. `make` lists the targets.

BROKER   ?=
FUZZTIME ?= 30s

.DEFAULT_GOAL := help
.PHONY: help demo build test test-rabbitmq test-ladder race fuzz check fmt install-test install-race tools

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: build ## run the demonstration; BROKER=URL runs it on that RabbitMQ
	bin/redrive demo $(if $(BROKER),--broker $(BROKER),)

build: ## build bin/redrive
	go build -trimpath -buildvcs=auto -o bin/redrive ./cmd/redrive

# Four packages at once: most of what they do is wait for brokers and disks.
# The limits of time are per package and above what the slowest needs here by
# several times: they end a hang, they do not measure.

test: install-test ## run the everyday tests; installs rabbitmq-server, postgresql, chromium, prometheus, python3 and nodejs when they are missing
	go test -p 4 -timeout 12m ./...

# The folder is made before it is named: a failure inside $$(…) would not stop
# the recipe.
test-rabbitmq: install-test ## run all RabbitMQ tests on 3.10 and on 4.0, in full size; 4.0 lives in a folder that is made once
	@internal/ci/rabbitmq-root trixie > /dev/null
	REDRIVE_TEST_MESSAGES=10000 REDRIVE_TEST_CUTS=100 go -C internal/tools run ./matrix -dir ../.. -must ../../testdata/mustpass.txt \
		3.10= 4.0=$$(internal/ci/rabbitmq-root trixie)

test-ladder: install-test ## live through the reference system with its true delays, once; takes about an hour
	REDRIVE_TEST_SCALE=1 go test -count=1 -timeout 150m -run '^TestReferenceSystem$$' ./quarantine/worker/rabbitmq

# Of the tests from outside, those in which processes, links or people race.
RACING = MainJob|Scenario$$|SecondShell|AbortHalfWay|OneCohort|KillSwitch|KillsOn|KilledAt|CutsAt|ConsumerThat|BrokerThat|FixThat|Keys|Link|Interrupted|VerifyWhile|DeletedQueue

race: install-race ## run the tests under the race detector: all of the packages, and of the program those that race
	go test -race -timeout 12m $$(go list ./... | grep -v /internal/integration$$)
	go test -race -timeout 12m -run '$(RACING)' ./internal/integration

fuzz: ## run every fuzz target for FUZZTIME (30s) each
	FUZZTIME=$(FUZZTIME) internal/ci/fuzz

check: tools ## vet, lint, known vulnerabilities, floors and house rules
	go vet ./...
	$$(internal/ci/tool golangci-lint) run
	cd internal/tools && $$(../ci/tool golangci-lint) run
	go -C internal/tools vet ./...
	go -C internal/tools test ./...
	go -C internal/tools run ./vulncheck -govulncheck $$(internal/ci/tool govulncheck) -indexdb $$(internal/ci/tool indexdb)
	go test -count=1 ./internal/arch

fmt: tools ## format the code
	$$(internal/ci/tool golangci-lint) fmt

# Built before they are used: a failure inside $$(…) would not stop the recipe.
tools:
	@internal/ci/tool golangci-lint govulncheck indexdb > /dev/null

install-test:
	@internal/ci/install-debian rabbitmq-server postgresql chromium prometheus python3 nodejs

# The race detector links C.
install-race:
	@internal/ci/install-debian rabbitmq-server postgresql chromium prometheus python3 nodejs gcc libc6-dev
