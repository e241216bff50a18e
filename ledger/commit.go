package ledger

import (
	"errors"
	"fmt"
	"time"

	"github.com/redrivehq/redrive/ledger/event"
)

const (
	maxGroup  = 256    // decisions in one transaction
	maxEvents = 20_000 // events of one decision with all reactions
)

// errIdle rolls a transaction back because there is nothing to commit.
var errIdle = errors.New("nothing to commit")

func (l *Log) run() {
	defer close(l.done)
	for {
		select {
		case j := <-l.jobs:
			l.commit(l.gather(j))
			if l.Err() != nil {
				return
			}
		case <-l.stop:
			return
		}
	}
}

// gather takes what waits, up to maxGroup decisions.
func (l *Log) gather(first *job) []*job {
	group := []*job{first}
	for len(group) < maxGroup {
		select {
		case j := <-l.jobs:
			group = append(group, j)
		default:
			return group
		}
	}
	return group
}

// commit runs a group in one transaction. When one of several decisions turns
// out to be impossible after it has begun to write, the group is rolled back
// and its decisions run one by one, so that only the culprit is refused.
func (l *Log) commit(group []*job) {
	g := grouping{log: l, tip: l.tip}
	err := l.kv.Update(func(w Writer) error {
		g = grouping{log: l, tip: l.tip, w: w}
		return g.run(group)
	})
	var broken *brokenDecision
	switch {
	case err == nil:
		l.tip = g.tip
		l.answer(group, g.records)
		if g.checkpoint != nil && l.o.Exported != nil {
			l.o.Exported(l.tip.signed, g.checkpoint)
		}
	case errors.Is(err, errIdle):
		l.answer(group, nil)
	case errors.Is(err, ErrCommit):
		l.die(err, group)
	case errors.As(err, &broken) && len(group) == 1:
		group[0].receipt, group[0].err = Receipt{}, broken.err
		l.answer(group, nil)
	case errors.As(err, &broken):
		for _, j := range group {
			if l.Err() != nil {
				return
			}
			j.receipt, j.err = Receipt{}, nil
			l.commit([]*job{j})
		}
	default:
		// The transaction never began: nothing was written.
		for _, j := range group {
			j.receipt, j.err = Receipt{}, err
		}
		l.answer(group, nil)
	}
}

func (l *Log) answer(group []*job, records []*event.Record) {
	if len(records) > 0 && l.o.After != nil {
		l.o.After(records)
	}
	for _, j := range group {
		close(j.done)
	}
}

func (l *Log) die(err error, group []*job) {
	l.mu.Lock()
	l.dead = err
	l.mu.Unlock()
	for _, j := range group {
		j.receipt, j.err = Receipt{}, err
		close(j.done)
	}
}

// brokenDecision reports a decision that failed after it began to write.
type brokenDecision struct{ err error }

func (b *brokenDecision) Error() string { return b.err.Error() }
func (b *brokenDecision) Unwrap() error { return b.err }

// grouping is one attempt to run a group inside a transaction.
type grouping struct {
	log        *Log
	w          Writer
	tip        tip
	records    []*event.Record
	checkpoint []byte
	line       []byte
	stored     bool // objects were written without a record
}

func (g *grouping) run(group []*job) error {
	l := g.log
	now := l.o.Now()
	if d := now.Sub(l.start); d > 0 && uint64(d.Milliseconds()) > g.tip.mono {
		g.tip.mono = uint64(d.Milliseconds())
	}
	sign := false
	for _, j := range group {
		j.receipt, j.err = Receipt{}, nil
		if err := j.ctx.Err(); err != nil {
			j.err = err
			continue
		}
		if err := l.kv.Room(j.req.Urgent); err != nil {
			j.err = err
			continue
		}
		if err := g.put(j.store); err != nil {
			return &brokenDecision{err}
		}
		g.stored = g.stored || len(j.store) > 0
		from := len(g.records)
		if err := g.decide(j, now); err != nil {
			return &brokenDecision{err}
		}
		if recs := g.records[from:]; len(recs) > 0 {
			j.receipt = Receipt{First: recs[0].Seq, Last: recs[len(recs)-1].Seq, Records: recs[:len(recs):len(recs)]}
		}
		sign = sign || j.sign
	}
	return g.finish(sign, now)
}

// finish signs a checkpoint when one is due and lets the gates close.
func (g *grouping) finish(sign bool, now time.Time) error {
	l := g.log
	for _, r := range g.records {
		sign = sign || signsAtOnce[r.Body.Kind()]
	}
	grown := g.tip.seq > g.tip.signed
	if grown && (sign || now.Sub(g.tip.at) >= l.o.CheckpointEvery) {
		signed, err := signTree(g.w, l.o, g.tip.seq)
		if err != nil {
			return err
		}
		g.checkpoint, g.tip.signed, g.tip.at = signed, g.tip.seq, now
	} else if len(g.records) == 0 && !g.stored {
		return errIdle
	}
	if l.o.Before != nil && len(g.records) > 0 {
		l.o.Before(g.records)
	}
	return nil
}

// decide runs one decision. A refusal is kept in the job; an error returned
// means that something was written already and must be rolled back.
func (g *grouping) decide(j *job, now time.Time) error {
	v := g.view(now)
	var events []event.Event
	if events, j.err = guarded(func() ([]event.Event, error) { return j.decide(v) }); j.err != nil || len(events) == 0 {
		return nil //nolint:nilerr // a refusal is the job's answer, not the group's failure
	}
	if !g.tip.opened {
		// The beginning of an epoch may change what the decision looked at, so
		// it is made again after it.
		if err := g.open(now); err != nil {
			return err
		}
		v = g.view(now)
		if events, j.err = guarded(func() ([]event.Event, error) { return j.decide(v) }); j.err != nil {
			return nil //nolint:nilerr // a refusal is the job's answer, not the group's failure
		}
	}
	return g.record(j.req, events, now)
}

// open begins the ledger and the epoch before the first record of a process.
func (g *grouping) open(now time.Time) error {
	var events []event.Event
	if g.tip.seq == 0 {
		events = append(events, event.Event{Body: &event.LedgerCreated{Key: g.log.o.VerifierKey, Origin: g.log.o.Origin}})
	}
	opened := &event.LedgerOpened{Program: g.log.o.Program}
	if g.tip.unclean {
		opened.Unclean = 1
	}
	g.tip.epoch++
	g.tip.opened, g.tip.unclean = true, false
	return g.record(Request{Actor: event.System}, append(events, event.Event{Body: opened}), now)
}

// record appends events, each followed by everything that reactors answer.
func (g *grouping) record(req Request, events []event.Event, now time.Time) error {
	for n := 0; len(events) > 0; n++ {
		if n == maxEvents {
			return fmt.Errorf("a decision with more than %d events: reactors answer each other without end: %w", maxEvents, ErrIntegrity)
		}
		e := events[0]
		events = events[1:]
		r, err := g.append(req, e, now)
		if err != nil {
			return err
		}
		v := g.view(now)
		var answers []event.Event
		for _, re := range g.log.o.Reactors {
			more, err := guarded(func() ([]event.Event, error) { return re.React(v, r) })
			if err != nil {
				return fmt.Errorf("react to %s: %w", r.Body.Kind(), err)
			}
			for i := range more {
				if more[i].Actor == nil {
					more[i].Actor = &event.System
				}
			}
			answers = append(answers, more...)
		}
		// Answers go before what the decision still has: they were given on the
		// state after this record, and a later one may change it.
		events = append(answers, events...)
	}
	return nil
}

// append writes one record: objects, line, leaf, projections.
func (g *grouping) append(req Request, e event.Event, now time.Time) (*event.Record, error) {
	if err := g.put(e.Objects); err != nil {
		return nil, err
	}
	r := &event.Record{Seq: g.tip.seq + 1, TS: uint64(max(now.UnixMilli(), 1)), Mono: g.tip.mono, Epoch: g.tip.epoch,
		Actor: req.Actor, Req: req.ID, Subj: e.Subj, Prev: g.tip.prev, Body: e.Body}
	if e.Actor != nil {
		r.Actor = *e.Actor
	}
	line, err := r.AppendLine(g.line[:0])
	if err != nil {
		return nil, err
	}
	g.line = line
	if err := g.w.Put(bucketLog, Key(r.Seq), line); err != nil {
		return nil, err
	}
	hash := event.HashLine(line)
	if err := addLeaf(g.w, r.Seq, hash); err != nil {
		return nil, err
	}
	g.tip.seq, g.tip.prev = r.Seq, hash
	for _, p := range g.log.o.Projectors {
		if _, err := guarded(func() (struct{}, error) { return struct{}{}, p.Apply(g.w, r) }); err != nil {
			return nil, fmt.Errorf("%s cannot apply record %d (%s): %w", p.Name(), r.Seq, r.Body.Kind(), err)
		}
	}
	g.records = append(g.records, r)
	return r, nil
}

func (g *grouping) put(objects []event.Object) error {
	for _, o := range objects {
		var err error
		if o.Value == nil {
			err = g.w.Delete(o.Bucket, o.Key)
		} else {
			err = g.w.Put(o.Bucket, o.Key, o.Value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (g *grouping) view(now time.Time) View {
	return View{Reader: g.w, Now: now, Mono: g.tip.mono, Epoch: g.tip.epoch, Seq: g.tip.seq}
}

// guarded turns a panic of domain code into the refusal of its decision: the
// committer serves everyone and must not die of one defect.
func guarded[T any](fn func() (T, error)) (out T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("defect: %v: %w", p, ErrIntegrity)
		}
	}()
	return fn()
}

// signsAtOnce lists the kinds after which a checkpoint is made in the same
// transaction: what they decide must not be undecidable later.
var signsAtOnce = map[event.Kind]bool{
	event.KindLedgerCreated:      true,
	event.KindLedgerRekeyed:      true,
	event.KindGenerationApproved: true,
	event.KindGenerationPaused:   true,
	event.KindGenerationAborted:  true,
	event.KindGenerationClosed:   true,
	event.KindEnvelopePurged:     true,
}
