package control

import (
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
)

// Pages of read transactions: one that lasts long keeps pages of the store from
// being used again.
const (
	// scanPage is how many cells one read transaction looks at.
	scanPage = 25_000
	// factsPage is how many envelopes one read transaction opens the facts of, or
	// how many records it parses: either costs ten times a cell and more.
	factsPage = 10_000
	// vetPage is how many members one read transaction vets: it may open each.
	vetPage = 256
)

// eachCell visits the cells of all envelopes in order of capture, size of them
// in one read transaction, until fn fails.
func (c *Controller) eachCell(size event.EnvelopeNo, fn func(v ledger.View, no event.EnvelopeNo, cell *quarantine.Cell) error) error {
	for next := event.EnvelopeNo(1); next > 0; {
		err := c.log.View(func(v ledger.View) (err error) {
			from := next
			next = 0
			quarantine.ScanCells(v, from, func(no event.EnvelopeNo, cell *quarantine.Cell) bool {
				if no >= from+size {
					next = no
					return false
				}
				err = fn(v, no, cell)
				return err == nil
			})
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
