package policy_test

import (
	"bytes"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine/policy"
)

func mustParse(t *testing.T, name string) *policy.Policy {
	t.Helper()
	text, err := os.ReadFile("../../testdata/policies/" + name)
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.Parse(name, text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestReferenceSystem holds the file to the contract, value by value.
func TestReferenceSystem(t *testing.T) {
	p := mustParse(t, "fulfillment.yaml")
	want := &policy.Policy{
		Version: "2026-12-01", DefaultOwner: "Fulfillment on-call",
		Reasons: map[string]policy.Reason{
			"schema_invalid":     {Class: event.Permanent, Owner: "Orders API team"},
			"unknown_sku":        {Class: event.Permanent, Owner: "Catalog team", Codes: []string{"404"}},
			"duplicate_order":    {Action: policy.ActionDrop, Owner: "Fulfillment team"},
			"downstream_timeout": {Class: event.Transient, Owner: "Fulfillment team", Codes: []string{"timeout"}},
			"db_conflict":        {Class: event.Transient, Owner: "Fulfillment team", Codes: []string{"40001", "40P01"}},
			"unknown":            {Class: event.Transient, Owner: "Fulfillment on-call"},
			"worker_crash":       {Class: event.ConsumerDefect, Owner: "Fulfillment on-call"},
		},
		Rules: []policy.Rule{
			{Queue: "orders.fulfillment", Header: "x-exception", Equals: "WarehouseTimeout", Reason: "downstream_timeout"},
			{Queue: "orders.fulfillment", Error: "(?i)deadlock|could not serialize", Reason: "db_conflict"},
		},
		Queues: []policy.Queue{{
			Name: "orders.fulfillment", Kind: "quorum", Prefetch: 10, Replicas: 3, Retries: 5, DeliveryLimit: 5,
			Delays: []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute}, Jitter: 0.2,
			Mode: policy.PerDelay, RetryQueue: "orders.fulfillment.retry", Quarantine: "orders.fulfillment.dlq",
			Retention: 1_209_600 * time.Second, Timeout: 5 * time.Second,
			Schemas: map[string]string{"order.placed": "order.placed.schema.json"},
			Headers: policy.Headers{Reason: "x-death-reason", LastReason: "x-last-reason", Attempts: "x-retry-count", FirstFailed: "x-first-failed-at",
				LastError: "x-last-error", ErrorCode: "x-error-code", TraceID: "x-trace-id", Consumer: "x-consumer-version"},
			Words: policy.Words{Malformed: "schema_invalid", Exhausted: "retries_exhausted", Unknown: "unknown", Duplicate: "duplicate_order",
				Parked: "predecessor_quarantined", Crash: "worker_crash"},
			Ordering:  policy.Ordering{OnFailure: "continue"},
			Operation: "header:x-idempotency-key", Horizon: 30 * 24 * time.Hour,
			Alerts: policy.Alerts{For: 10 * time.Minute, Depth: 50},
		}},
	}
	if !reflect.DeepEqual(p, want) {
		t.Errorf("the file says\n%+v\nthe contract\n%+v", p, want)
	}
	for name, does := range map[string]policy.Action{
		"schema_invalid": policy.ActionQuarantine, "unknown_sku": policy.ActionQuarantine, "duplicate_order": policy.ActionDrop,
		"downstream_timeout": policy.ActionRetry, "db_conflict": policy.ActionRetry, "unknown": policy.ActionRetry,
	} {
		if r := p.Reasons[name]; r.Does() != does {
			t.Errorf("%s does %s, want %s", name, r.Does(), does)
		}
	}
	q, ok := p.Quarantines("orders.fulfillment.dlq")
	if !ok || q.Name != "orders.fulfillment" || q.MaxDeliveries() != 36 {
		t.Errorf("the quarantine belongs to %q (%v), with at most %d deliveries", q.Name, ok, q.MaxDeliveries())
	}
	if _, ok := p.Quarantines("orders.fulfillment"); ok {
		t.Error("a queue is its own quarantine")
	}
}

func TestNeverRetryCodes(t *testing.T) {
	p := mustParse(t, "whatsapp-send.yaml")
	for _, code := range []string{"100", "131047", "132000", "132001"} {
		reason, ok := p.ReasonOf(code)
		if !ok || reason != "meta_error_"+code {
			t.Errorf("code %s means %q (%v)", code, reason, ok)
		}
		r, ok := p.Reason(reason)
		if !ok || r.Class != event.Permanent || r.Does() != policy.ActionQuarantine || r.Owner != "Messaging team" {
			t.Errorf("%s is %+v (%v)", reason, r, ok)
		}
		if class, owner := p.Classify(reason); class != event.Permanent || owner != "Messaging team" {
			t.Errorf("%s: %s, %s", reason, class, owner)
		}
	}
	for _, code := range []string{"", "1", "131048"} {
		if reason, ok := p.ReasonOf(code); ok {
			t.Errorf("code %q means %s", code, reason)
		}
	}
	if reason, ok := p.ReasonOf("130429"); !ok || reason != "rate_limited" {
		t.Errorf("a reason's own code means %q", reason)
	}
	if class, owner := p.Classify("meta_error_131048"); class != event.Unclassified || owner != "Messaging on-call" {
		t.Errorf("a code that nobody lists: %s, %s", class, owner)
	}
	q := p.Queues[0]
	if q.Retention != 14*24*time.Hour || q.Runs() != 5 || q.Headers.TraceID != "x-fbtrace-id" || q.Headers.Reason != "x-death-reason" ||
		q.Words.Malformed != "unparseable_json" || q.Words.Exhausted != "attempt_limit_reached" || q.Quarantine != "whatsapp.send.dlq" {
		t.Errorf("%+v", q)
	}
}

func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(policy.Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("policy", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("policy")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// bySchema is what the schema says about a file.
func bySchema(t *testing.T, s *jsonschema.Schema, text []byte) error {
	t.Helper()
	b, err := yaml.YAMLToJSON(text)
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		return err
	}
	return s.Validate(v)
}

func TestFilesFulfilTheSchema(t *testing.T) {
	s := compiled(t)
	for _, name := range []string{"fulfillment.yaml", "whatsapp-send.yaml"} {
		text, err := os.ReadFile("../../testdata/policies/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := bySchema(t, s, text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, text := range []string{
		head,
		head + "reasons:\n  a: {}\n",
		head + "queues: [{queue: q, retries: 0, delivery_limit: 0}]\n",
		head + "queues: [{queue: q, retries: 1, delays: [1500ms], jitter: 0}]\n",
		head + "queues: [{queue: q, jitter: 100%, timeout: 0, horizon: 0}]\n",
		head + "queues: [{queue: q, jitter: 0.25, retry: {mode: shared}}]\n",
		head + "queues: [{queue: a, quarantine: d}, {queue: b, quarantine: d}]\n",
		head + "never_retry: {codes: [100], reason: '{code}_no'}\nrules: [{error: x, reason: 100_no}]\n",
		"format: 1\nversion: 7\n",
	} {
		if _, err := policy.Parse("p", []byte(text)); err != nil {
			t.Errorf("%q\n%v", text, err)
		}
		if err := bySchema(t, s, []byte(text)); err != nil {
			t.Errorf("the schema refuses\n%s%v", text, err)
		}
	}
}

const head = "format: 1\nversion: v\n"

// TestMistakes is a table of files that are refused, and where. Those marked
// with ! are refused by the schema too.
func TestMistakes(t *testing.T) {
	long := strings.Repeat("x", 256)
	s := compiled(t)
	for text, want := range map[string]string{
		"":                            "empty",
		"!version: v\n":               "[1:1] format: 0: this version of redrive reads format 1",
		"!format: 2\nversion: v\n":    "[1:9] format: 2",
		"!format: 1\n":                "[1:1] version: is required",
		"!format: 1\nversion: ' v'\n": "[2:10] version",
		"!" + head + "extra: 1\n":     `[3:1] unknown field "extra"`,
		"!" + head + "default_owner: \"a\\nb\"\n": "[3:16] default_owner",

		"!" + head + "reasons:\n  a b: {}\n":                                  `[4:8] reasons.a b: reason "a b"`,
		"!" + head + "reasons:\n  a: {class: nice}\n":                         `[4:14] reasons.a.class: "nice" is unknown`,
		"!" + head + "reasons:\n  a: {klass: permanent}\n":                    `[4:7] unknown field "klass"`,
		"!" + head + "reasons:\n  a: {action: discard}\n":                     `[4:15] reasons.a.action: "discard"`,
		"!" + head + "reasons:\n  a: {action: retry, class: permanent}\n":     "[4:15] reasons.a.action",
		"!" + head + "reasons:\n  a: {action: retry, class: systemic}\n":      "spends no attempt",
		"!" + head + "reasons:\n  a: {action: quarantine, class: systemic}\n": "decides by itself",
		"!" + head + "reasons:\n  a: {action: drop, class: permanent}\n":      "had its effect",
		"!" + head + "reasons:\n  a: {owner: ' x'}\n":                         "[4:14] reasons.a.owner",
		head + "reasons:\n  a: {codes: [404]}\n  b: {codes: [404]}\n":         `[5:15] reasons.b.codes[0]: code "404" means reason a`,
		"!" + head + "reasons:\n  a: {codes: ['']}\n":                         "[4:15] reasons.a.codes[0]: is required",
		"!" + head + "reasons:\n  a: {codes: [[4]]}\n":                        "want a text",
		head + "reasons:\n  a: {}\n  a: {}\n":                                 "[5:3]",

		"!" + head + "never_retry: {codes: [100]}\n":                                    "[3:15] never_retry.reason: is required",
		"!" + head + "never_retry: {reason: r}\n":                                       "need codes",
		"!" + head + "never_retry: {codes: [100], reason: 'a b'}\n":                     "[3:37] never_retry.reason",
		head + "never_retry: {codes: ['1 2'], reason: 'r_{code}'}\n":                    "[3:23] never_retry.codes[0]",
		head + "reasons: {a: {codes: [100]}}\nnever_retry: {codes: [100], reason: r}\n": `[4:23] never_retry.codes[0]: code "100" means reason a`,

		"!" + head + "reasons: {a: {}}\nrules: [{reason: a}]\n":                                        "[4:10] rules[0]: a rule needs",
		"!" + head + "reasons: {a: {}}\nrules: [{reason: a, equals: x, error: y}]\n":                   "[4:29] rules[0].equals: needs header",
		"!" + head + "rules: [{header: x}]\n":                                                          "rules[0].reason: is required",
		head + "rules: [{header: x, reason: a}]\n":                                                     `[3:29] rules[0].reason: reason "a" is not listed`,
		head + "reasons: {a: {}}\nrules: [{error: '(', reason: a}]\n":                                  "[4:17] rules[0].error",
		head + "reasons: {a: {}}\nrules: [{error: '(?=x)', reason: a}]\n":                              "rules[0].error",
		"!" + head + "reasons: {a: {}}\nrules: [{error: " + long + "x, reason: a}]\n":                  "at most 256",
		"!" + head + "reasons: {a: {}}\nrules: [{header: " + long + ", reason: a}]\n":                  "at most 255",
		"!" + head + "reasons: {a: {}}\nrules: [{when: " + strings.Repeat(long, 9) + ", reason: a}]\n": "[4:16] rules[0].when",

		"!" + head + "masks: [{name: m}]\n":                              "masks[0].pattern: is required",
		"!" + head + "masks: [{pattern: m}]\n":                           "masks[0].name: is required",
		head + "masks: [{name: m, pattern: '['}]\n":                      "[3:28] masks[0].pattern",
		head + "masks: [{name: m, pattern: a}, {name: m, pattern: b}]\n": "[3:39] masks[1].name",

		"!" + head + "queues: [{}]\n":                                           "queues[0].queue: is required",
		"!" + head + "queues: [{queue: " + long + "}]\n":                        "[3:18] queues[0].queue: the name has 256 bytes",
		"!" + head + "queues: [{queue: amq.x}]\n":                               "for itself",
		"!" + head + "queues: [{queue: q, kind: stream}]\n":                     "[3:27] queues[0].kind",
		"!" + head + "queues: [{queue: q, prefetch: 0}]\n":                      "[3:31] queues[0].prefetch: 0",
		"!" + head + "queues: [{queue: q, prefetch: 1001}]\n":                   "[3:31] queues[0].prefetch: 1001: want 1 to 1000",
		"!" + head + "queues: [{queue: q, prefetch: 1.5}]\n":                    "[3:31] want a whole number",
		"!" + head + "queues: [{queue: q, replicas: 0}]\n":                      "queues[0].replicas",
		"!" + head + "queues: [{queue: q, retries: -1}]\n":                      "[3:30] queues[0].retries: -1",
		"!" + head + "queues: [{queue: q, retries: 101}]\n":                     "queues[0].retries: 101: want 0 to 100",
		head + "queues: [{queue: q, delivery_limit: 0}]\n":                      "[3:37] queues[0].delivery_limit: 0 with 5 retries",
		"!" + head + "queues: [{queue: q, delivery_limit: 1001}]\n":             "queues[0].delivery_limit",
		head + "queues: [{queue: q, retries: 1, delays: [1s, 2s]}]\n":           "[3:41] queues[0].delays: 2 of them with 1 retries",
		"!" + head + "queues: [{queue: q, delays: [soon]}]\n":                   `[3:30] duration "soon"`,
		head + "queues: [{queue: q, delays: [0s]}]\n":                           "[3:30] queues[0].delays[0]: 0s: want 1ms to 20d",
		head + "queues: [{queue: q, delays: [30d]}]\n":                          "queues[0].delays[0]",
		"!" + head + "queues: [{queue: q, delays: [5]}]\n":                      "[3:30] duration",
		"!" + head + "queues: [{queue: q, jitter: 101%}]\n":                     `[3:29] queues[0].jitter: "101%"`,
		"!" + head + "queues: [{queue: q, jitter: -1%}]\n":                      "queues[0].jitter",
		"!" + head + "queues: [{queue: q, jitter: lots}]\n":                     "queues[0].jitter",
		"!" + head + "queues: [{queue: q, jitter: 20}]\n":                       "queues[0].jitter",
		"!" + head + "queues: [{queue: q, retry: {mode: chain}}]\n":             "[3:35] queues[0].retry.mode",
		head + "queues: [{queue: q, retry: {queue: " + long[:253] + "}}]\n":     "with the delay behind it",
		"!" + head + "queues: [{queue: q, quarantine: amq.d}]\n":                "queues[0].quarantine",
		head + "queues: [{queue: q, retention: 0s}]\n":                          "[3:32] queues[0].retention: 0s",
		head + "queues: [{queue: q, retention: 30s}]\n":                         "queues[0].retention: 30s: want 1m to",
		head + "queues: [{queue: q, timeout: 2d}]\n":                            "queues[0].timeout",
		"!" + head + "queues: [{queue: q, schemas: {a: /etc/x}}]\n":             "[3:34] queues[0].schemas.a",
		"!" + head + "queues: [{queue: q, schemas: {a: ../x}}]\n":               "beside the policy",
		"!" + head + "queues: [{queue: q, headers: {reason: x-death}}]\n":       "[3:39] queues[0].headers.reason",
		"!" + head + "queues: [{queue: q, headers: {reason: x-redrive-mac}}]\n": "by redrive itself",
		head + "queues: [{queue: q, headers: {reason: x-retry-count}}]\n":       "is the name of reason already",
		"!" + head + "queues: [{queue: q, headers: {resaon: x}}]\n":             `unknown field "resaon"`,
		"!" + head + "queues: [{queue: q, words: {crash: 'a b'}}]\n":            "queues[0].words.crash",
		head + "queues: [{queue: q, words: {crash: unknown}}]\n":                `queues[0].words.unknown: "unknown" is the word for crash`,
		head + "reasons: {duplicate: {}}\nqueues: [{queue: q}]\n":               "has to have action drop",
		head + "reasons: {unknown: {action: drop}}\nqueues: [{queue: q}]\n":     "must not be dropped",
		"!" + head + "queues: [{queue: q, ordering: {sequence: 'header:s'}}]\n": "queues[0].ordering.key: is required",
		"!" + head + "queues: [{queue: q, ordering: {on_failure: park}}]\n":     "queues[0].ordering.key: is required",
		"!" + head + "queues: [{queue: q, ordering: {key: 'heder:s'}}]\n":       `expression "heder:s"`,
		"!" + head + "queues: [{queue: q, ordering: {on_failure: stop}}]\n":     "want continue or park",
		"!" + head + "queues: [{queue: q, operation: 'body:x'}]\n":              "[3:32] queues[0].operation",
		"!" + head + "queues: [{queue: q, alerts: {depth: 0}}]\n":               "[3:37] queues[0].alerts.depth",
		head + "queues: [{queue: q, alerts: {for: 0s}}]\n":                      "queues[0].alerts.for",

		head + "queues: [{queue: a}, {queue: a}]\n":                                                  `queues[1]: "a" is used by queues[0]`,
		head + "queues: [{queue: a}, {queue: b, retry: {queue: a.retry}}]\n":                         `"a.retry.1s" is used by queues[0]`,
		head + "queues: [{queue: a}, {queue: b, quarantine: a}]\n":                                   "[3:45] queues[1].quarantine",
		head + "queues: [{queue: a, quarantine: d}, {queue: b, quarantine: d, words: {crash: c}}]\n": "headers and words have to be the same",
		head + "---\nformat: 1\n": "second document",
	} {
		text, both := strings.CutPrefix(text, "!")
		_, err := policy.Parse("policy.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "policy.yaml: ") || !errors.Is(err, policy.ErrInvalid) {
			t.Errorf("%.200s\n%v\nwant %s", text, err, want)
		}
		if both {
			if bySchema(t, s, []byte(text)) == nil {
				t.Errorf("the schema accepts\n%.200s", text)
			}
		}
	}
}

func TestChecksOfTheCaller(t *testing.T) {
	said := errors.New("it is raining")
	for _, err := range []error{said, &policy.Fault{Path: []any{"version"}, Reason: "it is raining"}} {
		_, got := policy.Parse("p.yaml", []byte(head), func(*policy.Policy) error { return nil }, func(*policy.Policy) error { return err })
		if got == nil || !strings.Contains(got.Error(), "it is raining") || !errors.Is(got, err) {
			t.Errorf("%v", got)
		}
		if strings.Contains(got.Error(), "[2:10]") != !errors.Is(err, said) {
			t.Errorf("the place in %v", got)
		}
	}
}

// FuzzParse holds the parser to its promises about whatever somebody wrote.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"fulfillment.yaml", "whatsapp-send.yaml"} {
		text, err := os.ReadFile("../../testdata/policies/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(head + "queues: [&q {queue: a}, {queue: b, headers: {reason: x}}]\n"))
	f.Add([]byte(head + "reasons: {a: {codes: [1, 1e3, true]}}\nnever_retry: {codes: [2], reason: 'a{code}'}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := policy.Parse("p", text)
		if (err == nil) != (p != nil) {
			t.Fatalf("%v and %v", p, err)
		}
		if err != nil {
			if !errors.Is(err, policy.ErrInvalid) {
				t.Errorf("%v", err)
			}
			return
		}
		if err := p.Validate(); err != nil {
			t.Errorf("accepted, and then refused: %v", err)
		}
		for i := range p.Queues {
			q := &p.Queues[i]
			if again := q.WithDefaults(); !reflect.DeepEqual(&again, q) {
				t.Errorf("defaults change what has them: %+v, %+v", q, again)
			}
			for run := 1; run <= q.Runs(); run++ {
				low, high := q.DelayFor(run, 0), q.DelayFor(run, 1)
				if q.Retries > 0 && (low < time.Millisecond || high < low || high.Milliseconds() > 1<<32-1) {
					t.Errorf("run %d waits from %s to %s", run, low, high)
				}
			}
		}
		for _, code := range p.NeverRetry.Codes {
			if reason, ok := p.ReasonOf(code); !ok || !p.Knows(reason) {
				t.Errorf("code %q means %q", code, reason)
			}
		}
	})
}
