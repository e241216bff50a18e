package control

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/quarantine/stamp"
	"github.com/redrivehq/redrive/redrive"
)

// headerRules says what happens to headers and properties.
func (p *planning) headerRules() error {
	r, m := &p.req, &p.m
	m.Strip = redrive.DefaultStrip()
	if r.NoStrip {
		m.Strip = stamp.Names()
	}
	for _, name := range r.KeepHeaders {
		if r.NoStrip && slices.Contains(redrive.DefaultStrip(), name) && !slices.Contains(stamp.Names(), name) {
			continue // it is kept already
		}
		i := slices.Index(m.Strip, name)
		if i < 0 || slices.Contains(stamp.Names(), name) {
			return usage(fmt.Errorf("--keep-header %q: it is none of those that are taken off by default: %s", name, strings.Join(redrive.DefaultStrip(), ", ")))
		}
		m.Strip = slices.Delete(m.Strip, i, i+1)
	}
	for _, name := range r.DropHeaders {
		if len(name) > maxName || name == "" {
			return usage(fmt.Errorf("--drop-header: a header name has 1 to %d bytes, not %d", maxName, len(name)))
		}
		if !slices.Contains(m.Strip, name) {
			m.Strip = append(m.Strip, name)
		}
	}
	for _, pair := range r.SetHeaders {
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			return usage(errors.New("--set-header: want NAME=VALUE"))
		}
		m.Set = append(m.Set, name, value)
	}
	if err := redrive.CheckSet(m.Set); err != nil {
		return usage(err)
	}
	if r.KeepExpiration {
		m.Expiration = redrive.KeepExpiration
		p.warn = append(p.warn, "the expiration is kept: its time runs again at the destination, and what is not consumed in time dies there again")
	}
	if r.Persistent {
		m.Mode = 2
	}
	if !slices.Contains(m.Strip, amqpwire.HeaderDeath) {
		p.warn = append(p.warn, "x-death is kept: a RabbitMQ before 4.0 counts it on, and drops the message without a word when it dies again in a queue that it names")
	}
	if !slices.Contains(m.Strip, "CC") || !slices.Contains(m.Strip, "BCC") {
		p.warn = append(p.warn, "CC and BCC are kept: the broker also sends a copy to each queue that they name")
	}
	return nil
}

// examined bounds the members whose changes a plan looks at, and examinedBytes
// what it reads for that.
const (
	examined      = 1000
	examinedBytes = 64 << 20
)

// compare makes the messages of the first members as the release would, and
// counts what differs from the originals and what the broker would refuse.
func (p *planning) compare(d redrive.Destination, caps redrive.ReleaserCaps) error {
	counts, refused := map[redrive.Change]uint64{}, map[string]uint64{}
	bytes := uint64(0)
	for page := range slices.Chunk(p.members[:min(len(p.members), examined)], 50) {
		err := p.c.log.View(func(v ledger.View) error {
			for _, no := range page {
				f, err := quarantine.GetFacts(v, no)
				if err != nil {
					return err
				}
				if bytes += f.BodySize + f.PropertiesSize; bytes > examinedBytes && p.changes.Examined > 0 {
					return nil
				}
				p.changes.Examined++
				changes, err := p.compareOne(v, no, f, d, caps)
				reason, ok := refusal(err)
				switch {
				case ok:
					refused[reason]++
				case err != nil:
					return err
				}
				for _, c := range changes {
					counts[c]++
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("look at what would go out: %w", err)
		}
		if bytes > examinedBytes {
			break
		}
	}
	for c, n := range counts {
		what := "property"
		if c.Header {
			what = "header"
		}
		p.changes.List = append(p.changes.List, api.Change{What: what, Name: c.Name, How: c.How, Count: n})
	}
	slices.SortFunc(p.changes.List, func(a, b api.Change) int {
		return cmp.Or(-strings.Compare(a.What, b.What), -strings.Compare(a.How, b.How), strings.Compare(a.Name, b.Name))
	})
	for _, reason := range sorted(refused) {
		p.changes.Refused = append(p.changes.Refused, api.Excluded{Reason: reason, Count: refused[reason]})
	}
	return nil
}

// compareOne makes one message as the release would, with a stamp of the same
// size.
func (p *planning) compareOne(v ledger.View, no event.EnvelopeNo, f *quarantine.Facts, d redrive.Destination, caps redrive.ReleaserCaps) ([]redrive.Change, error) {
	o, err := p.c.outgoingNow(v, no)
	if err != nil {
		return nil, err
	}
	s := redrive.Stamped{Stamp: stamp.Stamp{Generation: f.ID.String(), Envelope: f.ID.String(), Position: uint32(len(p.members)), Try: 1}}
	m, err := redrive.BuildMessage(o, d.For(f), &p.m, s, caps)
	if err != nil {
		return nil, err
	}
	return redrive.Changes(o.Properties, m.Properties), nil
}
