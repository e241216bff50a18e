package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/config"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

// storeBatch is how many bytes of member lists one transaction writes, so that a
// stop never waits long for a plan.
const storeBatch = 512 << 10

// planning is one plan on its way.
type planning struct {
	c   *Controller
	req api.PlanRequest
	now time.Time
	conditions
	at      uint64 // ledger position of the selection
	found   []redrive.Candidate
	ops     *redrive.Operations
	taken   map[event.EnvelopeNo]bool                   // members of open generations
	repairs map[event.EnvelopeNo]redrive.RepairedMember // live ones, without positions
	members []event.EnvelopeNo
	out     []redrive.Exclusion
	checks  []redrive.Check
	kinds   map[kindOf]*api.EnvelopeGroup
	died    map[string]uint64
	types   map[typeOf]uint64
	words   map[quarantine.Word]string
	origins map[string]uint64     // members by original exchange, when that is the destination
	places  []redrive.Destination // some of what the destination stands for
	routes  []api.Route
	changes api.Changes
	m       redrive.Manifest
	warn    []string

	keys     *redrive.KeyOrder                     // nil when nothing is ordered
	siblings map[event.EnvelopeNo]event.EnvelopeNo // of duplicates
	oldest   time.Time                             // when a member was seen first, where an inbox is declared
}

type kindOf struct{ reason, owner quarantine.Word }

// plan resolves a selection into a frozen cohort. With DryRun it shows what it
// would do and writes nothing.
func (c *Controller) plan(ctx context.Context, req api.PlanRequest) (api.Plan, error) {
	for tries := 1; ; tries++ {
		plan, err := c.planOnce(ctx, req)
		if tries == maxPlanTries || !errors.Is(err, redrive.ErrStale) {
			return plan, err
		}
	}
}

// maxPlanTries is how often a selection is made anew because another plan was
// frozen meanwhile.
const maxPlanTries = 5

func (c *Controller) planOnce(ctx context.Context, req api.PlanRequest) (api.Plan, error) {
	p := &planning{c: c, req: req, now: c.o.Now(), repairs: map[event.EnvelopeNo]redrive.RepairedMember{}}
	if err := errors.Join(p.forces(), p.resolveFilter()); err != nil {
		return api.Plan{}, err
	}
	if err := p.choose(); err != nil {
		return api.Plan{}, err
	}
	if err := p.describe(ctx); err != nil {
		return api.Plan{}, err
	}
	if len(p.members) == 0 {
		return p.answer(nil), fmt.Errorf("%w: %s", redrive.ErrEmpty, p.whyEmpty())
	}
	if req.DryRun {
		return p.answer(nil), nil
	}
	no, err := p.freeze(ctx)
	if err != nil {
		return api.Plan{}, err
	}
	g, err := c.show(no)
	if err != nil {
		return api.Plan{}, err
	}
	return p.answer(&g), nil
}

func (p *planning) resolveFilter() error {
	r := &p.req
	q := api.EnvelopeQuery{IDs: r.IDs, Queue: r.Queue, Died: r.Died, Reason: r.Reason, Class: r.Class, Owner: r.Owner, Type: r.Type, Lineage: r.Lineage,
		Narrowing: r.Narrowing}
	if selects := !reflect.ValueOf(q).IsZero(); selects == r.All {
		return usage(errors.New("say what to release: --id, --reason, --class, --owner, --queue, --type, --lineage, --where or another condition; or --all alone, for everything that is quarantined"))
	}
	return p.c.log.View(func(v ledger.View) error {
		var err error
		if p.m.Selection, err = p.c.freezeSelection(v, q, p.now); err != nil {
			return err
		}
		p.words = quarantine.Words(v)
		p.at = v.Seq
		p.conditions, err = p.c.conditions(v, &p.m.Selection, time.UnixMilli(p.now.UnixMilli()))
		return err
	})
}

func ulidOf(v ledger.View, no event.EnvelopeNo) (string, error) {
	f, err := quarantine.GetFacts(v, no)
	if err != nil {
		return "", err
	}
	return f.ID.String(), nil
}

// choose scans all envelopes in pages and splits what the selection names into
// members and exclusions. Envelopes that are not quarantined are part of the
// selection only when they were named.
func (p *planning) choose() error {
	ops := redrive.NewOperations()
	ops.Force(p.m.Forced...)
	// All at once: growing it step by step would copy a hundred megabytes in one
	// go, and a copy that cannot be interrupted holds up every commit meanwhile.
	found := make([]redrive.Candidate, 0, p.largest())
	taken := map[event.EnvelopeNo]bool{}
	named := len(p.req.IDs) > 0
	limit := int(p.c.o.Config.Limits.Cohort)
	for next, page := event.EnvelopeNo(1), 0; next > 0; {
		err := p.c.log.View(func(v ledger.View) error {
			match, err := p.filter.Resolve(v)
			if err != nil {
				return err
			}
			reserved, err := redrive.LoadReservations(v)
			if err != nil {
				return err
			}
			from := next
			next = 0
			page = len(found)
			quarantine.ScanCells(v, from, func(no event.EnvelopeNo, cell *quarantine.Cell) bool {
				if no >= from+scanPage {
					next = no
					return false
				}
				has := reserved.Of(no) != 0
				var c redrive.Candidate
				if c, err = p.candidate(v, no, cell); err != nil {
					return false
				}
				ops.Note(&c.Cell, has)
				if has {
					var all []uint64
					if all, err = quarantine.OperationsOf(v, no, cell.Operation); err != nil {
						return false
					}
					ops.Reserve(all)
				}
				if match.Match(no, cell) && (named || cell.Custody == event.Quarantined) {
					found = append(found, c)
					if has {
						taken[no] = true
					}
				}
				return len(found) <= limit || p.where != nil
			})
			return err
		})
		if err == nil {
			found, err = p.holds(found, page)
		}
		if err != nil {
			return err
		}
		if len(found) > limit {
			return usage(fmt.Errorf("the selection has more than %d envelopes, the largest cohort (limits.cohort); narrow it down", limit))
		}
	}
	p.found, p.ops, p.taken = found, ops, taken
	return nil
}

// settle splits what was found into members and exclusions, finds where the
// members go, and withholds what does not fulfil the contract that is in force
// there now.
func (p *planning) settle(ctx context.Context) (redrive.Destination, error) {
	p.split()
	d, err := p.destination()
	if err != nil || len(p.members) == 0 {
		return d, err
	}
	if withheld, err := p.vet(ctx, d); err != nil || !withheld {
		return d, err
	}
	p.split()
	return p.destination()
}

// split makes the cohort of what was found, and counts it.
func (p *planning) split() {
	p.kinds, p.died, p.origins, p.places = map[kindOf]*api.EnvelopeGroup{}, map[string]uint64{}, map[string]uint64{}, nil
	p.m.Original, p.warn = nil, nil
	p.types = map[typeOf]uint64{}
	p.members, p.out = redrive.Cohort(p.found, p.ops, func(no event.EnvelopeNo) bool { return p.taken[no] })
	p.noteSiblings()
	excluded := make(map[event.EnvelopeNo]bool, len(p.out))
	for _, x := range p.out {
		excluded[x.Env] = true
	}
	p.m.Risk = 0
	for i := range p.found {
		if !excluded[p.found[i].No] {
			p.count(&p.found[i].Cell)
			if p.found[i].Cell.Flags.Has(quarantine.FlagDuplicateRisk) {
				p.m.Risk++
			}
		}
	}
}

// holds drops those from a position on for which the predicate does not hold.
func (p *planning) holds(found []redrive.Candidate, from int) ([]redrive.Candidate, error) {
	if p.where == nil {
		return found, nil
	}
	nos := make([]event.EnvelopeNo, 0, len(found)-from)
	for _, c := range found[from:] {
		nos = append(nos, c.No)
	}
	hits, err := p.c.matching(p.where, nos)
	if err != nil {
		return nil, err
	}
	kept := found[:from]
	for _, c := range found[from:] {
		if len(hits) > 0 && hits[0] == c.No {
			kept, hits = append(kept, c), hits[1:]
		}
	}
	return kept, nil
}

// largest is how many envelopes a selection can have at most.
func (p *planning) largest() (n int) {
	_ = p.c.log.View(func(v ledger.View) error { // a wrong guess costs time only
		n = int(min(uint64(quarantine.Count(v)), p.c.o.Config.Limits.Cohort))
		return nil
	})
	return n + 1
}

// eachMember visits the members in release order, in pages, so that no read
// transaction lasts long.
func (p *planning) eachMember(fn func(v ledger.View, no event.EnvelopeNo) error) error {
	return p.inPages(factsPage, fn)
}

func (p *planning) inPages(size int, fn func(v ledger.View, no event.EnvelopeNo) error) error {
	for page := range slices.Chunk(p.members, size) {
		err := p.c.log.View(func(v ledger.View) error {
			for _, no := range page {
				if err := fn(v, no); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *planning) count(cell *quarantine.Cell) {
	k := kindOf{cell.Reason, cell.Owner}
	g := p.kinds[k]
	if g == nil {
		g = &api.EnvelopeGroup{Reason: p.words[cell.Reason], Class: cell.Class.String(), Owner: p.words[cell.Owner], Oldest: time.Unix(int64(cell.FirstDied), 0).UTC()}
		p.kinds[k] = g
	}
	g.Count++
	if t := time.Unix(int64(cell.FirstDied), 0).UTC(); t.Before(g.Oldest) {
		g.Oldest = t
	}
	p.died[p.words[cell.Died]]++
	p.types[typeOf{cell.Reason, cell.Type}]++
}

// describe fills the manifest.
func (p *planning) describe(ctx context.Context) error {
	d, err := p.settle(ctx)
	if err != nil {
		return err
	}
	set, _ := p.c.o.Config.Destination(d)
	r, m := &p.req, &p.m
	m.Exchange, m.RoutingKey = d.Exchange, d.RoutingKey
	if m.Evidence, err = config.ParseEvidence(either(r.Evidence, set.Evidence)); err != nil {
		return usage(err)
	}
	bake, err := duration(r.Bake, time.Duration(set.Bake), time.Minute)
	if err != nil {
		return err
	}
	deadline, err := duration(r.OutcomeDeadline, time.Duration(set.OutcomeDeadline), p.c.patience(d))
	if err != nil {
		return err
	}
	m.Bake, m.Deadline = uint64(bake.Milliseconds()), uint64(deadline.Milliseconds())
	m.Version, m.At, m.Ledger = redrive.ManifestVersion, uint64(p.now.UnixMilli()), p.at
	m.Approvers = 1
	if err := p.state(); err != nil {
		return err
	}
	if err := p.order(&set); err != nil {
		return err
	}
	if err := p.headerRules(); err != nil {
		return err
	}
	m.SelfApprove = uint64(max(p.c.o.Config.Approvals.PlannerUpTo, 0))
	m.Members, m.Repaired = uint64(len(p.members)), uint64(len(p.repaired()))
	for _, x := range p.out {
		if x.Reason == redrive.ReasonDuplicate {
			m.Deduplicated++
		} else {
			m.Withheld++
		}
	}
	if err = p.brake(); err != nil {
		return err
	}
	if len(r.Stages) == 0 {
		m.Stages = redrive.HeadStages(m.Stages, m.Heads)
	}
	if m.Limits, err = p.limits(); err != nil {
		return err
	}
	if err := p.doubt(&set, d); err != nil {
		return err
	}
	if m.Risk > 0 {
		p.warn = append(p.warn, fmt.Sprintf("%d were released before and no effect was found; it may still come, which would be a duplicate", m.Risk))
	}
	if len(p.members) == 0 {
		return nil
	}
	caps, err := p.preflight(ctx, d)
	if err != nil {
		return err
	}
	return p.compare(d, caps)
}

// state takes over what the planner states about the fix and the destination.
func (p *planning) state() error {
	r, m := &p.req, &p.m
	m.Fix, m.Code, m.Consumer, m.Expected = either(r.Fix, "none stated"), r.Code, r.Consumer, r.Expected
	for _, x := range r.Expected {
		if !slices.Contains(event.Outcomes, event.Outcome(x)) {
			return usage(fmt.Errorf("expected outcome %q: want admitted, succeeded, deduplicated, rejected or ambiguous", x))
		}
	}
	for _, s := range []string{m.Fix, m.Code, m.Consumer} {
		if len(s) > 1024 {
			return usage(errors.New("fix, code and consumer have at most 1024 bytes each"))
		}
	}
	return nil
}

func either[T comparable](a, b T) T { return cmp.Or(a, b) }

func duration(text string, configured, fallback time.Duration) (time.Duration, error) {
	if text == "" {
		if configured > 0 {
			return configured, nil
		}
		return fallback, nil
	}
	d, err := config.ParseDuration(text)
	return d, usage(err)
}

// stages turns sizes into the number of members up to and including each
// stage. The rest is the last stage.
func stages(sizes []uint64, members uint64) ([]uint64, error) {
	if len(sizes) == 0 {
		return redrive.DefaultStages(members), nil
	}
	if len(sizes) > 32 {
		return nil, usage(fmt.Errorf("%d stages: at most 32", len(sizes)))
	}
	var out []uint64
	sum := uint64(0)
	for _, n := range sizes {
		if n == 0 {
			return nil, usage(errors.New("--stages: a stage of 0 members; want sizes of 1 or more, such as 1,10"))
		}
		if sum+n >= members {
			break
		}
		sum += n
		out = append(out, sum)
	}
	return append(out, members), nil
}

func (p *planning) limits() (event.Limits, error) {
	def, r := p.c.o.Config.Limits, &p.req
	l := event.Limits{Window: def.Window, Exposure: def.Exposure, Burst: def.Burst}
	hz := def.Rate
	if r.Rate != 0 {
		hz = r.Rate
	}
	var err error
	if l.RateMilli, err = redrive.RateMilli(hz); err != nil {
		return l, usage(err)
	}
	if r.Window > 0 {
		l.Window = r.Window
	}
	if r.Burst > 0 {
		l.Burst = r.Burst
	}
	if l.Burst == 0 {
		l.Burst = uint32(min(max(hz/50, 1), redrive.MaxWindow))
	}
	if r.Exposure > 0 {
		l.Exposure = r.Exposure
	}
	if p.m.Evidence != redrive.EvidenceOutcomes && r.Exposure == 0 {
		// Nothing tells that a message is done, so the cap would only stop the
		// release: here the stages bound the exposure.
		l.Exposure = uint32(max(min(uint64(len(p.members)), redrive.MaxCohort), 1))
	}
	return l, usage(redrive.CheckLimits(l))
}

// freeze stores the member lists and the reservation in small transactions,
// and then the plan itself in one that only checks and records.
func (p *planning) freeze(ctx context.Context) (event.GenerationNo, error) {
	id, err := ulid.New(ulid.Timestamp(p.now), p.c.o.Random)
	if err != nil {
		return 0, fmt.Errorf("make the id of the generation: %w", err)
	}
	p.m.ID = id.String()
	p.m.Planner = request(ctx, p.req.As).Actor.Subject
	objects := redrive.ReservationObjects(p.m.ID, p.members)
	chunks, digests := redrive.MemberObjects(p.members)
	lists, excluded := redrive.ExclusionObjects(p.out)
	p.m.Chunks, p.m.Excluded = digests, excluded
	kinds, strata, err := p.strata()
	if err != nil {
		return 0, err
	}
	p.m.Strata = strata
	repairs, repaired := redrive.RepairObjects(p.repaired())
	p.m.Repairs = repaired
	objects = slices.Concat(objects, repairs, chunks, lists, kinds, redrive.FollowObjects(p.m.ID, p.out))
	if p.keys != nil {
		list, index := redrive.KeyObjects(p.keys.Links)
		objects, p.m.Keys = append(objects, list...), index
	}
	for len(objects) > 0 {
		n, size := 0, 0
		for n < len(objects) && size < storeBatch {
			size += len(objects[n].Value) + len(objects[n].Key)
			n++
		}
		if err := p.c.log.Store(ctx, request(ctx, p.req.As), objects[:n]); err != nil {
			return 0, err
		}
		objects = objects[n:]
	}
	var no event.GenerationNo
	_, err = p.c.update(ctx, p.req.As, func(v ledger.View) ([]event.Event, error) {
		events, n, err := redrive.Freeze(v, &p.m)
		if err != nil {
			return nil, err
		}
		no = n
		checked, err := redrive.Preflight(n, redrive.PhasePlan, p.checks)
		return append(events, checked), err
	})
	return no, err
}

func (p *planning) answer(g *api.Generation) api.Plan {
	out := api.Plan{Generation: g, Selected: uint64(len(p.members) + len(p.out)), Members: uint64(len(p.members)),
		Excluded: []api.Excluded{}, Kinds: []api.EnvelopeGroup{}, Samples: []string{}, Sampled: []api.Sample{}, Stays: []api.Stay{}, Types: []api.TypeCount{}, Stages: p.m.Stages, HeaderRules: p.m.Strip, SetHeaders: []string{},
		Changes:     api.Changes{Examined: p.changes.Examined, List: append([]api.Change{}, p.changes.List...), Refused: append([]api.Excluded{}, p.changes.Refused...)},
		Destination: destinationText(p.m.Destination()), Routes: append([]api.Route{}, p.routes...),
		Limits: wireLimits(p.m.Limits), Watched: append([]string{}, p.m.Watched...), Evidence: string(p.m.Evidence), DuplicateRisk: p.m.Risk, Warnings: append([]string{}, p.warn...), Checks: wireChecks(p.checks),
		Forced: append([]string{}, p.m.Forced...), ForceWhy: p.m.ForceWhy, Repaired: p.m.Repaired}
	out.Order, out.Doubt = p.wireOrder(), p.wireDoubt()
	if p.m.Limits.RateMilli > 0 {
		out.ExpectedTime = p.expectedTime().Round(time.Second).String()
	}
	for i := 0; i < len(p.m.Set); i += 2 {
		out.SetHeaders = append(out.SetHeaders, p.m.Set[i])
	}
	reasons := map[string]uint64{}
	for _, x := range p.out {
		reasons[x.Reason]++
	}
	for _, r := range sorted(reasons) {
		out.Excluded = append(out.Excluded, api.Excluded{Reason: r, Count: reasons[r]})
	}
	for _, k := range p.kinds {
		out.Kinds = append(out.Kinds, *k)
	}
	slices.SortFunc(out.Kinds, func(a, b api.EnvelopeGroup) int {
		return compare(b.Count, a.Count, a.Reason+a.Owner, b.Reason+b.Owner)
	})
	out.Forecast = p.forecast()
	p.examples(&out)
	return out
}

// stayAdvice says what a person can do about a reason to stay.
var stayAdvice = map[string]string{
	redrive.ReasonReserved:          "another generation has them: redrive generation list",
	redrive.ReasonOperationReserved: "another generation has their operation: redrive generation list",
	redrive.ReasonConflict:          "the same operation has different contents: settle the wrong ones with redrive envelope resolve, or configure identity.operation",
	redrive.ReasonHeld:              "lift the hold with redrive envelope unhold",
	redrive.ReasonOperationInDoubt:  "an earlier release of the operation is in doubt: rule on it or close its generation",
	redrive.ReasonNoOrigin:          "they do not tell with which exchange and key they were first published: name a destination with --to-queue",
	redrive.ReasonPossibleDuplicate: "each may be a copy of another envelope: compare them, then resolve one or purge the other",
}

func (p *planning) whyEmpty() string {
	if len(p.out) == 0 {
		return "no quarantined envelope matches; see what there is with: redrive envelope list"
	}
	counts := map[string]int{}
	for _, x := range p.out {
		counts[x.Reason]++
	}
	text, advice := "", ""
	for _, r := range sorted(counts) {
		text += fmt.Sprintf(", %d %s", counts[r], r)
		if a := stayAdvice[r]; a != "" {
			advice += "; " + a
		}
	}
	return fmt.Sprintf("all %d selected envelopes stay: %s%s", len(p.out), text[2:], advice)
}
