package control

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/quarantine"
)

// dueSoon is how long before its deadline an open envelope is spoken of.
const dueSoon = 24 * time.Hour

// status says who holds the store, what this process is doing, and which
// queues wait for a person.
func (c *Controller) status(context.Context, api.None) (api.StatusInfo, error) {
	s := api.StatusInfo{PID: c.o.PID, Command: c.o.Command, Since: c.o.Since.UTC(), Version: c.o.Version,
		Running: []uint32{}, Late: []api.LateOwner{}, Parked: []api.ParkedQueue{}}
	c.mu.Lock()
	for no := range c.driven {
		s.Running = append(s.Running, uint32(no))
	}
	s.Captures = slices.SortedFunc(maps.Values(c.capturing), func(a, b api.CaptureState) int { return cmp.Compare(a.Queue, b.Queue) })
	c.mu.Unlock()
	err := c.log.View(func(v ledger.View) error {
		s.Records, s.Envelopes = v.Seq, uint64(quarantine.Count(v))
		var err error
		if s.Open, err = quarantine.Open(v, ""); err != nil {
			return err
		}
		for _, l := range c.retention().Late(v, c.o.Now(), dueSoon) {
			s.Late = append(s.Late, api.LateOwner{Owner: l.Owner, Overdue: l.Overdue, Soon: l.Soon})
		}
		parked, err := quarantine.ParkedQueues(v)
		for _, p := range parked {
			s.Parked = append(s.Parked, api.ParkedQueue{Queue: p.Queue, Reason: p.Reason, Since: p.Since, Why: p.Why, Advice: parkAdvice(p.Reason)})
		}
		return err
	})
	return s, err
}
