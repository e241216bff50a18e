package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/safetext"
)

// maxAttempts is how many messages of a replay are followed one by one.
const maxAttempts = 100

// replaying is one replay by one command: capture, plan, approval, release.
type replaying struct {
	c    *command
	s    api.Caller
	plan api.PlanRequest
	wait bool
	p    *progress

	out  api.Replay
	said map[string]bool // what was said about an envelope
}

func newReplay(c *command) *cobra.Command {
	r := replaying{c: c}
	cmd := &cobra.Command{
		Use: "replay", Short: "Capture, plan, approve and start in one command", Args: cobra.NoArgs,
		Long: `Release messages of a dead-letter queue after their cause was fixed, in one command:
what the broker still has of the queue is captured, the messages that are named or
have the reason are planned, the plan is approved if whoever runs this may, and
started. They go to the queue in which they died, or to --to. Stages, limits and
thresholds are those of any plan. Other messages of the queue stay.

A plan that is too large for its planner stays, for somebody else to approve. A
start that is refused takes its plan back: mend the cause and give the command
again.

With --wait the command stays until the outcome of every message is known or its
deadline has passed, and prints what becomes of each of the first 100. Without, it
comes back when everything is published.

Exit codes: 0 released, and with --wait nothing of it is open · 3 refused, waits for
an approval, or paused by a person · 4 a threshold paused it · 5 some are missing,
ambiguous, undelivered or came back · 75 temporary, try again.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if (len(r.plan.IDs) == 0) == (r.plan.Reason == "") {
				return usageError{errors.New("say what to replay: --id or --reason, and not both")}
			}
			r.plan.As = c.as
			return c.with(cmd, func(ctx context.Context, s api.Caller) error {
				r.s, r.p, r.said = s, c.progress(), map[string]bool{}
				return r.run(ctx)
			})
		},
	}
	deadQueueFlag(cmd, &r.plan.Queue)
	f := cmd.Flags()
	whichFlags(f, &r.plan.IDs, &r.plan.Reason)
	f.StringVar(&r.plan.Fix, "fix", "", "what was changed, so that it will work this time")
	f.StringVar(&r.plan.ToQueue, "to", "", "destination queue; default: the queue in which the messages died")
	neverEmpty(f, "to")
	f.BoolVar(&r.wait, "wait", false, "stay until every outcome is known or its deadline has passed")
	return cmd
}

func (r *replaying) run(ctx context.Context) error {
	r.out = api.Replay{Queue: r.plan.Queue, Attempts: []api.ReplayAttempt{}, Remaining: []api.EnvelopeGroup{}}
	if err := r.capture(ctx); err != nil {
		return err
	}
	var err error
	if r.out.Plan, err = api.Call(ctx, r.s, api.GenerationPlan, r.plan, nil); err != nil {
		return notCaptured(ctx, r.s, r.plan.Queue, err)
	}
	g := r.out.Plan.Generation
	r.out.Generation = *g
	r.say("Planned generation %d: %d of %d go to %s. Fix: %s.", g.Number, r.out.Plan.Members, r.out.Plan.Selected, r.out.Plan.Destination, g.Fix)
	for _, x := range r.out.Plan.Excluded {
		r.say("  %d stay: %s", x.Count, x.Reason)
	}
	approved, err := api.Call(ctx, r.s, api.GenerationApprove, api.ApproveRequest{ID: g.ID, Digest: g.Manifest, Why: "dlq replay", As: r.plan.As}, nil)
	if err != nil {
		return r.unapproved(err)
	}
	r.out.Generation = approved
	if err := r.start(ctx); err != nil {
		return err
	}
	return r.end(ctx)
}

// say prints a line of the story, which the document tells otherwise.
func (r *replaying) say(format string, args ...any) {
	if !r.c.json {
		r.p.end()
		r.c.say(format, args...)
	}
}

// capture takes in what the broker has. A queue that somebody else captures, that
// is parked or gone is no reason to keep what the store has.
func (r *replaying) capture(ctx context.Context) error {
	sum, err := api.Call(ctx, r.s, api.CaptureRun, api.CaptureRequest{Queues: []string{r.plan.Queue}}, r.p.show)
	r.p.end()
	if err != nil {
		return err
	}
	r.out.Captured = sum.Captured + sum.Merged
	var e *api.Error
	switch err := sum.Err(); {
	case err == nil:
	case errors.As(err, &e) && (e.Code == api.CodeRefused || e.Code == api.CodeNotFound):
		r.c.hint("Going on with what the store has. %s", e.Message)
	default:
		return err
	}
	r.say("Captured %d from %s.", r.out.Captured, r.plan.Queue)
	return nil
}

// unapproved says what has to happen to a plan that its planner may not approve.
func (r *replaying) unapproved(err error) error {
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.CodeRefused {
		return err
	}
	g := &r.out.Generation
	r.out.Waits = fmt.Sprintf("redrive generation approve %d --digest %s", g.Number, g.Manifest)
	if err := r.c.print(r.out, func() {
		r.c.say("It waits for somebody else: %s", r.out.Waits)
		r.c.say("Then start it with: redrive generation start %d", g.Number)
		r.c.say("Or take it back, which frees its messages: redrive generation reject %d --why …", g.Number)
	}); err != nil {
		return err
	}
	return &exitError{code: exitRefused, text: "planned, and not released: " + e.Message}
}

// start releases. When it is refused before anything went out the plan is taken
// back: it would keep its messages from the next attempt.
func (r *replaying) start(ctx context.Context) error {
	id := r.out.Generation.ID
	g, err := api.Call(ctx, r.s, api.GenerationStart, api.RunRequest{ID: id, NoWait: !r.wait, As: r.plan.As}, func(p api.Progress) { r.show(ctx, p) })
	r.p.end()
	if err == nil {
		r.out.Generation = g
		return nil
	}
	end := context.WithoutCancel(ctx)
	now, e := api.Call(end, r.s, api.GenerationShow, api.GenerationRef{ID: id}, nil)
	if e != nil {
		return err
	}
	switch now.State {
	case "approved":
	case "running", "paused", "settling":
		r.c.hint("Generation %d has begun. It goes on with: redrive generation resume %d --why …", now.Number, now.Number)
		return err
	default:
		return err
	}
	_, rejectErr := api.Call(end, r.s, api.GenerationReject, api.GenerationAct{ID: id, Why: "dlq replay could not start it", As: r.plan.As}, nil)
	if rejectErr != nil {
		return errors.Join(err, rejectErr)
	}
	r.c.hint("Nothing was released, and generation %d was taken back. Give the command again when the cause is mended.", r.out.Generation.Number)
	return err
}

// show tells the interim states of a release: of few messages each change, of
// many the numbers.
func (r *replaying) show(ctx context.Context, p api.Progress) {
	if p.Generation == nil || r.c.json || !r.wait || r.out.Plan.Members > maxAttempts {
		r.p.show(p)
		return
	}
	if err := r.attempts(ctx); err != nil {
		r.p.show(p) // the numbers are there without it
	}
}

// attempts brings the state of the first members up to date and says what is new
// about them.
func (r *replaying) attempts(ctx context.Context) error {
	id := r.out.Generation.ID
	page, err := api.Call(ctx, r.s, api.GenerationMembers, api.MembersRequest{ID: id, Limit: maxAttempts}, nil)
	if err != nil {
		return err
	}
	list := make([]api.ReplayAttempt, 0, len(page.Members))
	for _, m := range page.Members {
		list = append(list, api.ReplayAttempt{Envelope: m.Envelope, Tries: m.Tries, Disposition: m.Disposition, Code: m.Code})
	}
	// What the members are called, and as what they came back.
	for page := (api.EnvelopePage{Next: 1}); page.Next > 0; {
		q := api.EnvelopeQuery{Narrowing: api.Narrowing{Generation: id}, Limit: 500}
		if page.Envelopes != nil {
			q.Cursor = page.Next
		}
		if page, err = api.Call(ctx, r.s, api.EnvelopeList, q, nil); err != nil {
			return err
		}
		for i := range page.Envelopes {
			complete(list, &page.Envelopes[i])
		}
		if len(list) == maxAttempts && uint64(len(list)) < r.out.Plan.Members {
			break // of many, the first page has to do
		}
	}
	r.out.Attempts = list
	if !r.wait {
		return nil
	}
	for _, a := range list {
		// What is seen only after its outcome came has been published before.
		for _, text := range []string{publishedText(&a, r.out.Plan.Destination), outcomeText(&a)} {
			if key := a.Envelope + text; text != "" && !r.said[key] {
				r.said[key] = true
				r.say("%s  attempt %d: %s", cmp.Or(a.MessageID, a.Envelope), a.Attempt, text)
			}
		}
	}
	return nil
}

// complete fills in the attempt that an envelope is part of.
func complete(list []api.ReplayAttempt, e *api.Envelope) {
	i := slices.IndexFunc(list, func(a api.ReplayAttempt) bool { return a.Envelope == e.ID })
	if i >= 0 {
		list[i].MessageID, list[i].Attempt = e.Identity.MessageID, e.Lineage.Attempt+1
		return
	}
	if i = slices.IndexFunc(list, func(a api.ReplayAttempt) bool { return a.Envelope == e.Lineage.Parent }); i >= 0 {
		list[i].Returned, list[i].Reason = e.ID, cmp.Or(e.Last, e.Reason)
	}
}

// publishedText is "" for what the destination does not have, as far as is known.
func publishedText(a *api.ReplayAttempt, destination string) string {
	switch a.Disposition {
	case "pending", "admitted", "succeeded", "rejected", "requarantined", "missing", "deduplicated_consumer", "ambiguous_effect":
		text := "published to " + destination
		if a.Tries > 1 {
			text += fmt.Sprintf(" by try %d", a.Tries)
		}
		return text
	}
	return ""
}

// outcomeText is "" for what may still change by itself.
func outcomeText(a *api.ReplayAttempt) string {
	switch a.Disposition {
	case "waiting", "in_flight", "pending":
		return ""
	case "requarantined":
		if a.Returned == "" {
			return "" // its envelope is read with the next look
		}
		return "came back" + after(" for ", a.Reason) + ", as envelope " + a.Returned
	case "missing":
		return "missing: no outcome by its deadline"
	}
	return strings.ReplaceAll(a.Disposition, "_", " ") + after(": ", a.Code)
}

// end prints the statement and says how it ended.
func (r *replaying) end(ctx context.Context) error {
	if err := r.attempts(ctx); err != nil {
		return err
	}
	g := &r.out.Generation
	report, err := api.Call(ctx, r.s, api.GenerationReport, api.GenerationRef{ID: g.ID}, nil)
	if err != nil {
		return err
	}
	r.out.Remaining, r.out.Statement = append(r.out.Remaining, report.Remaining...), report.Text
	open := g.Tally["pending"] + g.Tally["admitted"]
	if !r.wait && open > 0 {
		r.out.Waits = fmt.Sprintf("redrive generation resume %d --why …", g.Number)
	}
	if err := r.c.print(r.out, func() {
		if g.State == "paused" {
			_, _ = r.c.out.Write([]byte(safetext.Block(report.Text))) // made safe line by line
		}
		r.c.afterRun(ctx, r.s, g)
		if r.out.Waits != "" {
			r.c.say("%d have no outcome yet. Wait for it with: %s", open, r.out.Waits)
		}
	}); err != nil {
		return err
	}
	code := generationExit(g)
	if code == exitUnfinished && !r.wait && unfinished(g) == g.Tally["pending"] {
		return nil // released, which is all that was asked for
	}
	switch code {
	case exitOK:
		return nil
	case exitUnfinished:
		return &exitError{code: code, text: unfinishedText(g)}
	}
	return &exitError{code: code}
}

// unfinishedText names what keeps a replay from being done.
func unfinishedText(g *api.Generation) string {
	var parts []string
	for _, x := range []struct{ disposition, text string }{
		{"requarantined", "came back"}, {"missing", "without an outcome at the deadline of " + g.Deadline + " after the publish"},
		{"undelivered", "not delivered"}, {"ambiguous_publish", "in doubt whether published"}, {"ambiguous_effect", "ambiguous in effect"},
		{"pending", "published, without an outcome yet"}, {"waiting", "not sent"}, {"in_flight", "in flight"},
	} {
		if n := g.Tally[x.disposition]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, x.text))
		}
	}
	return strings.Join(parts, ", ")
}
