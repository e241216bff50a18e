package quarantine_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
)

// acts are everything that a person can do to envelopes.
func acts(b *book) map[string]func(v ledger.View, envs event.Ranges, why string) ([]event.Event, error) {
	type act = func(v ledger.View, envs event.Ranges, why string) ([]event.Event, error)
	return map[string]act{
		"annotate": func(v ledger.View, e event.Ranges, why string) ([]event.Event, error) {
			return quarantine.Annotate(v, e, why, "T-1")
		},
		"classify": func(v ledger.View, e event.Ranges, why string) ([]event.Event, error) {
			return quarantine.Classify(v, e, "systemic", why, "8", "")
		},
		"assign": func(v ledger.View, e event.Ranges, why string) ([]event.Event, error) {
			return quarantine.Assign(v, e, why, "")
		},
		"hold": func(v ledger.View, e event.Ranges, why string) ([]event.Event, error) {
			return quarantine.Hold(v, e, why, "T-1")
		},
		"unhold": quarantine.Unhold,
		"resolve": func(v ledger.View, e event.Ranges, why string) ([]event.Event, error) {
			return quarantine.Resolve(v, e, why, "T-1", b.isReserved)
		},
		"purge": func(v ledger.View, e event.Ranges, why string) ([]event.Event, error) {
			return quarantine.Purge(v, e, why, "", b.isReserved)
		},
		"view": func(v ledger.View, e event.Ranges, why string) ([]event.Event, error) {
			return quarantine.View(v, e, "raw", why)
		},
	}
}

func (b *book) do(name string, nos ...event.EnvelopeNo) error {
	b.Helper()
	_, err := b.update(func(v ledger.View) ([]event.Event, error) {
		return acts(b)[name](v, event.RangesOf(nos...), "because")
	})
	return err
}

// as puts one envelope into a state.
func (b *book) as(state string) event.EnvelopeNo {
	b.Helper()
	no := b.orders(1)[0]
	custody := map[string]event.Custody{"released": event.Released, "returned": event.ReturnedAsKid}
	switch state {
	case "held":
		b.ok(b.do("hold", no))
	case "reserved":
		b.reserved[no] = 4
	case "resolved":
		b.ok(b.do("resolve", no))
	case "purged":
		b.ok(b.do("purge", no))
	case "released", "returned":
		b.ok(b.store.Update(func(w ledger.Writer) error {
			return quarantine.SetCustody(w, 4, true, map[event.EnvelopeNo]event.Custody{no: custody[state]})
		}))
	}
	return no
}

// The whole square of acts and states: who refuses what.
func TestActsInEveryState(t *testing.T) {
	refused := map[string]string{
		"hold": "held purged", "unhold": "quarantined reserved released returned resolved purged",
		"resolve": "reserved resolved purged", "purge": "held reserved released purged", "view": "purged",
	}
	b := newRough(t)
	for name := range acts(b) {
		for _, state := range []string{"quarantined", "held", "reserved", "released", "returned", "resolved", "purged"} {
			no := b.as(state)
			before := b.cell(no)
			err := b.do(name, no)
			want := strings.Contains(refused[name], state)
			if want != (errors.Is(err, quarantine.ErrNotNow) || errors.Is(err, quarantine.ErrErased)) || !want && err != nil {
				t.Errorf("%s of a %s envelope: %v, want a refusal: %v", name, state, err, want)
			}
			if err != nil && b.cell(no) != before {
				t.Errorf("%s of a %s envelope is refused and changes it", name, state)
			}
		}
	}
}

// newRough is a book whose custodies a test sets by hand, so that it cannot
// be rebuilt from its ledger.
func newRough(t *testing.T) *book {
	t.Helper()
	b := newBook(t)
	b.rough = true
	return b
}

func TestActsNeedTheirWords(t *testing.T) {
	b := newBook(t)
	no := event.RangesOf(b.orders(1)[0])
	for name, act := range acts(b) {
		for why, words := range map[string]string{"nothing": "", "too much": strings.Repeat("x", 1025)} {
			if name == "classify" || name == "purge" && why == "too much" {
				continue // the reason of a class may be empty; tickets are checked below
			}
			b.view(func(v ledger.View) {
				if _, err := act(v, no, words); !errors.Is(err, quarantine.ErrArgument) {
					t.Errorf("%s with %s: %v", name, why, err)
				}
			})
		}
		b.view(func(v ledger.View) {
			if _, err := act(v, event.RangesOf(event.EnvelopeNo(9)), "w"); !errors.Is(err, quarantine.ErrNoEnvelope) {
				t.Errorf("%s of no envelope: %v", name, err)
			}
			if _, err := act(v, nil, "w"); !errors.Is(err, quarantine.ErrNoEnvelope) {
				t.Errorf("%s of nothing: %v", name, err)
			}
		})
	}
	b.view(func(v ledger.View) {
		if _, err := quarantine.Classify(v, no, "", "", "", ""); !errors.Is(err, quarantine.ErrArgument) {
			t.Errorf("classified as nothing: %v", err)
		}
		if _, err := quarantine.Classify(v, no, "bad luck", "", "", ""); !errors.Is(err, quarantine.ErrArgument) {
			t.Errorf("classified as bad luck: %v", err)
		}
	})
}

// One that is refused refuses all of them.
func TestActsAreAllOrNothing(t *testing.T) {
	b := newBook(t)
	nos := b.orders(3)
	b.ok(b.do("hold", nos[2]))
	if err := b.do("purge", nos...); !errors.Is(err, quarantine.ErrNotNow) {
		t.Fatalf("%v", err)
	}
	for _, no := range nos {
		if _, err := b.original(no); err != nil {
			t.Errorf("envelope %d: %v", no, err)
		}
	}
}

func TestWhatActsChange(t *testing.T) {
	b := newBook(t)
	nos := b.orders(130) // over three blocks of cells
	word := func(w quarantine.Word) (s string) {
		b.view(func(v ledger.View) { s = quarantine.WordText(v, w) })
		return s
	}
	for _, name := range []string{"annotate", "classify", "assign", "hold"} {
		b.ok(b.do(name, nos[60:70]...))
	}
	for _, no := range nos {
		c, touched := b.cell(no), no > 60 && no <= 70
		if touched != (c.Class == event.Systemic && word(c.Reason) == "because" && word(c.Owner) == "because" && c.Flags.Has(quarantine.Held)) ||
			!touched && (c.Class != event.Permanent || word(c.Reason) != "unknown_sku" || word(c.Owner) != "catalog" || c.Flags != 0) {
			t.Errorf("envelope %d: %+v", no, c)
		}
	}
	b.must(func(v ledger.View) ([]event.Event, error) {
		return quarantine.Classify(v, event.RangesOf(nos[60]), "", "another", "8", "")
	})
	if c := b.cell(nos[60]); c.Class != event.Systemic || word(c.Reason) != "another" {
		t.Errorf("an empty class was changed: %+v", c)
	}
	b.ok(b.do("unhold", nos[60]))
	if b.cell(nos[60]).Flags.Has(quarantine.Held) || !b.cell(nos[61]).Flags.Has(quarantine.Held) {
		t.Error("the hold was not lifted, or too many were")
	}
	b.view(func(v ledger.View) {
		notes, err := quarantine.Notes(v, nos[65])
		b.ok(err)
		if len(notes) != 1 || notes[0].Text != "because" || notes[0].Ticket != "T-1" || notes[0].Actor.Subject != "operator" {
			t.Errorf("%+v", notes)
		}
	})
}

// After a purge neither the payload nor anything that identifies is left, in
// the facts or in any file, once the store is compacted; the tombstone stays.
func TestPurgeErases(t *testing.T) {
	b := newBook(t)
	secret := func(s string) string { return "planted-" + s + "-7f3a91" }
	view := amqpwire.View{Present: amqpwire.MessageID, MessageID: secret("message"), Headers: texts("x-operation-id", secret("operation"),
		"x-ordering-key", secret("order"), "x-sequence", secret("sequence"), "x-trace-id", secret("trace"), "x-error-code", secret("error"),
		"x-death-reason", "unknown_sku", "x-last-error", secret("diagnostic"))}
	d := b.delivery(secret("body"), view)
	d.RoutingKey = secret("key")
	large := b.delivery(strings.Repeat(secret("large"), 20_000), amqpwire.View{})
	nos, _ := b.capture(d, large, b.delivery("another", headers("x-operation-id", "stays")))
	b.ok(b.do("annotate", nos[0]))
	b.ok(b.do("purge", nos[:2]...))
	for _, no := range nos[:2] {
		if _, err := b.original(no); !errors.Is(err, quarantine.ErrErased) {
			t.Errorf("envelope %d: %v", no, err)
		}
		if c := b.cell(no); c.Custody != event.Purged || c.Operation != 0 || c.Meaning != 0 || !c.Flags.Has(quarantine.PayloadGone) {
			t.Errorf("%+v", c)
		}
	}
	f := b.facts(nos[0])
	if f.Reason != "unknown_sku" || f.Queue != "orders.dlq" || f.BodySize == 0 || f.ID.Time() == 0 {
		t.Errorf("the tombstone is empty: %+v", f)
	}
	if o, err := b.original(nos[2]); err != nil || string(o.Body) != "another" {
		t.Errorf("the one beside it: %v", err)
	}
	b.view(func(v ledger.View) {
		for _, id := range []string{secret("operation"), secret("message")} {
			if _, err := quarantine.Lookup(v, id); !errors.Is(err, quarantine.ErrNoEnvelope) {
				t.Errorf("%s still finds an envelope: %v", id, err)
			}
		}
		v.Scan(ledger.Bucket{Name: "envelope.facts"}, nil, func(_, value []byte) bool {
			if bytes.Contains(value, []byte("planted-")) {
				t.Errorf("left in the facts: %q", value)
			}
			return true
		})
		if names := quarantine.BlobNames(v); len(names) != 0 {
			t.Errorf("the blob of a purged body is still in use: %v", names)
		}
	})
}

// Sealed or not, nothing of a message stands in any file in the open.
func TestPayloadsAreNeverInTheOpen(t *testing.T) {
	b := newBook(t)
	b.capture(b.delivery("planted-body", amqpwire.View{}), b.delivery(strings.Repeat("planted-body", 50_000), headers("x-last-error", "planted-error")))
	b.ok(filepath.WalkDir(b.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		for _, word := range []string{"planted-body", "planted-error"} {
			if bytes.Contains(content, []byte(word)) {
				t.Errorf("%s holds %s", d.Name(), word)
			}
		}
		return err
	}))
}

func TestDamagedOriginalsAreNotShown(t *testing.T) {
	b := newRough(t)
	no := b.orders(2)[0]
	flip := func(bucket string, from, to event.EnvelopeNo) {
		b.ok(b.store.Update(func(w ledger.Writer) error {
			v := bytes.Clone(w.Get(ledger.Bucket{Name: bucket}, ledger.Key(uint64(from))))
			if from == to {
				v[len(v)-1] ^= 1
			}
			return w.Put(ledger.Bucket{Name: bucket, Append: true}, ledger.Key(uint64(to)), v)
		}))
	}
	for _, bucket := range []string{"envelope.secret", "envelope.properties", "body.secret", "body.sealed"} {
		flip(bucket, no, no)
		if _, err := b.original(no); !errors.Is(err, ledger.ErrIntegrity) {
			t.Errorf("a flipped bit in %s: %v", bucket, err)
		}
		flip(bucket, no, no) // and back
		if _, err := b.original(no); err != nil {
			t.Fatal(err)
		}
	}
	for _, bucket := range []string{"body.secret", "body.sealed"} {
		flip(bucket, no+1, no) // the body of another message, with its own secret
	}
	if _, err := b.original(no); !errors.Is(err, ledger.ErrIntegrity) {
		t.Errorf("a body that was exchanged: %v", err)
	}
}

func TestMasks(t *testing.T) {
	own, err := quarantine.NewMask("iban", `[A-Z]{2}\d{2}[A-Z0-9]{11,30}`)
	if err != nil {
		t.Fatal(err)
	}
	masks := append(quarantine.DefaultMasks(), own)
	for in, want := range map[string]string{
		"password=hunter2 for amqp://bob:hunter2@host/": "password=*** for amqp://bob:***@host/",
		`{"api_key": "k-123", "n": 1}`:                  `{"api_key": "***", "n": 1}`,
		"Authorization: Bearer abc.def":                 "Authorization: Bearer ***",
		"call +491701234567 now":                        "call +49***67 now",
		"IBAN DE89370400440532013000":                   "IBAN ***",
		"nothing here":                                  "nothing here",
	} {
		if got := quarantine.ApplyMasks(in, masks); got != want {
			t.Errorf("%s\n got %s\nwant %s", in, got, want)
		}
	}
	for _, p := range []string{"(", strings.Repeat("a", 257)} {
		if _, err := quarantine.NewMask("bad", p); err == nil {
			t.Errorf("%.10q is taken", p)
		}
	}
	rules := quarantine.DefaultRules()
	props, err := amqpwire.Build(amqpwire.View{Present: amqpwire.Headers, Headers: texts("x-last-error", "token=abc "+strings.Repeat("é", 400))})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff("token=*** "+strings.Repeat("é", 251), rules.Diagnostic(&quarantine.Original{Properties: props}, masks)); d != "" {
		t.Error(d)
	}
}
