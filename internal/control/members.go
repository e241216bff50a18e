package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

// maxMembers is the longest page of members.
const maxMembers = 5000

// generationMembers lists members in release order. Identities are recorded as
// viewed before one of them leaves.
func (c *Controller) generationMembers(ctx context.Context, req api.MembersRequest) (api.MembersPage, error) {
	page := api.MembersPage{Members: []api.MemberRow{}}
	if req.Limit == 0 {
		req.Limit = maxPage
	}
	if req.Limit < 1 || req.Limit > maxMembers {
		return page, usage(fmt.Errorf("limit %d: want 1 to %d", req.Limit, maxMembers))
	}
	if req.WithIdentity && req.Why == "" {
		return page, usage(errors.New("operations and message ids come from messages: say with --why why they are needed; it goes into the ledger"))
	}
	no, err := c.find(req.ID)
	if err != nil {
		return page, err
	}
	var identities event.Ranges
	err = c.log.View(func(v ledger.View) error {
		g, err := redrive.Get(v, no)
		if err != nil {
			return err
		}
		var withIdentity []event.EnvelopeNo
		end := min(req.From+uint64(req.Limit), g.Members)
		rows := rowing{v: v, g: g, words: quarantine.Words(v), identity: req.WithIdentity}
		var failed error
		err = redrive.EachMemberFrom(v, g, event.Position(req.From), func(pos event.Position, env event.EnvelopeNo) bool {
			if uint64(pos) >= end {
				return false
			}
			var row api.MemberRow
			if row, failed = rows.row(pos, env); failed != nil {
				return false
			}
			if row.Operation+row.MessageID != "" {
				withIdentity = append(withIdentity, env)
			}
			page.Members = append(page.Members, row)
			return true
		})
		if end < g.Members {
			page.Next = end
		}
		identities = event.RangesOf(withIdentity...)
		return errors.Join(err, failed)
	})
	if err == nil && len(identities) > 0 {
		_, err = c.update(ctx, req.As, func(v ledger.View) ([]event.Event, error) {
			return quarantine.ViewIdentities(v, identities, req.Why)
		})
	}
	if err != nil {
		return api.MembersPage{}, err
	}
	return page, nil
}

// rowing makes the rows of one page, within one read transaction.
type rowing struct {
	v        ledger.View
	g        *redrive.Generation
	repairs  redrive.RepairLists
	words    map[quarantine.Word]string
	identity bool
}

func (t *rowing) row(pos event.Position, env event.EnvelopeNo) (api.MemberRow, error) {
	v, g, words := t.v, t.g, t.words
	f, err := quarantine.GetFacts(v, env)
	if err != nil {
		return api.MemberRow{}, err
	}
	cell, _ := quarantine.GetCell(v, env)
	m := redrive.GetMember(v, g.No, pos)
	row := api.MemberRow{Position: uint64(pos), Envelope: f.ID.String(), Disposition: m.Disposition().String(), Custody: cell.Custody.String(),
		Reason: words[cell.Reason], Class: cell.Class.String(), Owner: words[cell.Owner], Tries: uint64(m.Tries), Effect: m.Facts.EffectWord(),
		Captured: moment(f.Captured), FirstDied: maybe(f.FirstDied)}
	switch m.Disposition() {
	case event.Withheld, event.Undelivered:
		row.Code = m.ReasonText()
	}
	if m.ConfirmedAt > 0 {
		t := time.Unix(int64(m.ConfirmedAt), 0).UTC()
		row.Confirmed = &t
	}
	if t.identity {
		if f, err = t.repairs.Outgoing(v, g, pos, env); err != nil {
			return row, err
		}
		row.Operation, row.MessageID = text(f.Operation), text(f.MessageID)
	}
	return row, nil
}
