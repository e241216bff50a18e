package arch

import (
	"fmt"
	"slices"
	"strings"
)

// module is the path under which the packages of this tree import each other.
const module = "github.com/redrivehq/redrive"

// place says where a package stands and whom it may see.
//
// A package sees every package on a lower floor, and on its own floor only
// those in sees. Tests of a package see the same, and every place marked
// helper or forTests.
type place struct {
	floor int
	// sees lists the packages of the same floor that this one may import.
	sees []string
	// only, when not nil, replaces the floor rule: these packages of the tree
	// and the standard library, nothing else. Tests are not bound by it.
	only []string
	// helper marks code that exists for tests: shipped code never imports it.
	helper bool
	// forTests marks a real driver that tests of any floor may open, so that
	// they need no mock of it.
	forTests bool
	// driver marks a package that only the wiring may name.
	driver bool
	// command marks a package main, the only kind that may end the process.
	command bool
}

// domain reports whether the package takes time, randomness and the outside
// world as arguments.
func domain(pkg string) bool {
	p, known := places[pkg]
	return known && p.floor <= 2 && !p.helper
}

// wiring is the one package that names drivers; everyone else gets them through
// the ports of the domain.
const wiring = "internal/app"

// places is the shape of the code, from the ground up.
var places = map[string]place{
	// Floor 0: the book and its vocabulary.
	"ledger/event": {floor: 0, only: []string{}},
	"ledger":       {floor: 0, sees: []string{"ledger/event"}},
	// The verifier shares no code with what it verifies; its tests use the real
	// ledger to write what it reads.
	"ledger/verify": {floor: 0, only: []string{"ledger/event"}, sees: []string{"ledger", "ledger/event"}},

	// Escaping of foreign text for terminals: down here so that all may use it.
	"internal/safetext": {floor: 0},
	// Files that people write, with a place in every error.
	"internal/strictyaml": {floor: 0},

	// Floor 1: envelopes. Numbers, contracts and bytes do not know the noun that
	// uses them. A stamp is headers, so it is written in the terms of the bytes;
	// an outcome quotes the stamp of the message that it speaks of.
	"quarantine/amqpwire": {floor: 1},
	"quarantine/outcome":  {floor: 1, sees: []string{"quarantine/amqpwire", "quarantine/stamp"}},
	"quarantine/policy":   {floor: 1},
	"quarantine/stamp":    {floor: 1, sees: []string{"quarantine/amqpwire"}},
	"quarantine": {floor: 1, sees: []string{
		"quarantine/amqpwire", "quarantine/outcome", "quarantine/policy", "quarantine/stamp",
	}},
	"quarantine/worker": {floor: 1, sees: []string{
		"quarantine", "quarantine/amqpwire", "quarantine/outcome", "quarantine/policy", "quarantine/stamp",
	}},

	// Floor 2: generations.
	"redrive": {floor: 2},

	// Floor 3: technologies, one package each, blind to each other.
	// Drivers have their judgement of queues in common; the client of a side
	// door of a broker stands behind its driver.
	"internal/broker/local":               {floor: 3, driver: true, forTests: true, sees: []string{"internal/broker/topology"}},
	"internal/broker/rabbitmq":            {floor: 3, driver: true, sees: []string{"internal/broker/rabbitmq/management", "internal/broker/topology"}},
	"internal/broker/rabbitmq/management": {floor: 3},
	"internal/broker/rabbitmq/rawamqp":    {floor: 3, helper: true},
	"internal/broker/topology":            {floor: 3},
	"internal/broker/brokertest":          {floor: 3, helper: true},
	"internal/config":                     {floor: 3},
	"internal/evidence":                   {floor: 3, driver: true},
	"internal/keyfile":                    {floor: 3, forTests: true},
	"internal/metrics":                    {floor: 3},
	"internal/postgrestest":               {floor: 3, helper: true},
	"internal/predicate":                  {floor: 3},
	"internal/proxy":                      {floor: 3},
	"internal/probe":                      {floor: 3},
	"internal/rabbittest":                 {floor: 3, helper: true},
	"internal/schema":                     {floor: 3},
	"internal/store/bolt":                 {floor: 3, driver: true, forTests: true},
	"internal/store/storetest":            {floor: 3, helper: true},
	"quarantine/worker/drivers":           {floor: 3, forTests: true},
	"quarantine/worker/rabbitmq":          {floor: 3, sees: []string{"quarantine/worker/drivers", "internal/broker/rabbitmq", "internal/schema"}},
	"quarantine/worker/dedup/bolt":        {floor: 3, forTests: true},
	"quarantine/worker/dedup/deduptest":   {floor: 3, helper: true},
	"quarantine/worker/dedup/postgres":    {floor: 3, forTests: true},

	// Floor 4: use cases, and the wire types they share with doors and clients.
	"internal/api":      {floor: 4},
	"internal/control":  {floor: 4, sees: []string{"internal/api"}, forTests: true},
	"internal/policing": {floor: 4, sees: []string{"internal/api"}},

	// Floor 5: doors, and the demo world behind one of them.
	"internal/demo":    {floor: 5},
	"internal/httpapi": {floor: 5},
	"internal/report":  {floor: 5},
	"internal/ui":      {floor: 5},

	// Floor 6: the operator's words, and the wiring.
	"internal/app": {floor: 6},
	"internal/cli": {floor: 6, sees: []string{"internal/app"}},

	// Floor 7: the program, and tests that look at all of it.
	"cmd/redrive":              {floor: 7, command: true},
	"internal/arch":            {floor: 7, helper: true, only: []string{}},
	"internal/docs":            {floor: 7, helper: true},
	"internal/integration":     {floor: 7, helper: true},
	"internal/tools/vulncheck": {floor: 7, only: []string{}, command: true},
	"internal/tools/matrix":    {floor: 7, only: []string{}, command: true},
}

// checkFloors reports every import of f that its place forbids.
func checkFloors(f *source) []string {
	from, known := places[f.pkg]
	if !known {
		return []string{fmt.Sprintf("package %s has no floor: add it to the table places in internal/arch/floors_test.go "+
			"and to depguard in .golangci.yml", f.pkg)}
	}
	var out []string
	for _, path := range f.imports() {
		if reason := refuseImport(f, from, path); reason != "" {
			out = append(out, fmt.Sprintf("imports %s: %s", path, reason))
		}
	}
	return out
}

// refuseImport returns why f, standing at from, may not import path, or "".
func refuseImport(f *source, from place, path string) string {
	target, inTree := strings.CutPrefix(path, module+"/")
	if !inTree {
		if from.only != nil && !f.test && !standard(path) {
			return f.pkg + " uses the standard library only, so that it can be read and trusted by itself"
		}
		return ""
	}
	to, known := places[target]
	switch {
	case target == f.pkg:
		return "" // an external test of the package itself
	case !known:
		return "that package has no floor: add it to the table places in internal/arch/floors_test.go"
	case f.test && (to.helper || to.forTests):
		return ""
	case to.helper && !from.helper:
		return target + " is for tests: shipped code must not depend on it"
	case from.only != nil && !f.test:
		if !slices.Contains(from.only, target) {
			return fmt.Sprintf("of this tree %s may see only %q", f.pkg, from.only)
		}
		return ""
	case to.driver && !f.test && !from.helper && f.pkg != wiring && !slices.Contains(from.sees, target):
		return "only " + wiring + " names drivers: take the port of the domain instead"
	case to.floor > from.floor:
		return fmt.Sprintf("arrows point down: floor %d may not see floor %d", from.floor, to.floor)
	case to.floor == from.floor && !slices.Contains(from.sees, target):
		return fmt.Sprintf("both stand on floor %d, and neighbours are blind to each other unless the table lists them", to.floor)
	}
	return ""
}

// standard reports whether path is of the standard library, whose first element
// never has a dot.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}
