package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/config"
	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

// doctor checks the set-up and says what to do about what it finds. It looks
// with connections of its own: those of a process that holds the store may have
// been made long ago.
func (c *Controller) doctor(ctx context.Context, _ api.None) (api.DoctorReport, error) {
	e := examination{c: c, rep: api.DoctorReport{Checks: []api.DoctorCheck{}}, seen: map[quarantine.Finding]bool{}}
	if err := c.o.KV.Room(false); err != nil {
		e.add("space", resultFailed, err.Error(), "make room; until then only stops are accepted")
	} else {
		e.add("space", resultOK, "enough free space for the store", "")
	}
	src, rel, end, err := c.o.Brokers.Fresh(ctx)
	if err != nil {
		e.add("broker", resultFailed, err.Error(), "check url, user, password_file and management in the configuration")
		return e.rep, nil
	}
	defer func() {
		if err := end(); err != nil {
			c.o.Logger.WarnContext(ctx, "close the connections of an examination", slog.Any("error", err))
		}
	}()
	caps := src.Caps()
	e.add("broker", resultOK, fmt.Sprintf("%s %s, cluster %s, vhost %s", caps.Broker, caps.Version, caps.Cluster, caps.VHost), "")
	if !e.pin(pinOfSource(src)) {
		return e.rep, nil // its queues are none of ours
	}
	for _, s := range c.o.Config.Sources {
		e.source(ctx, src, s.Queue)
	}
	for _, d := range c.o.Config.Destinations {
		e.destination(ctx, rel, d)
	}
	return e.rep, nil
}

// Results of checks.
const (
	resultOK      = "ok"
	resultWarning = "warning"
	resultFailed  = "failed"
	resultUnknown = "unknown"
)

// resultOf is the result of a check that is a finding: what cannot work has
// failed, what loses messages or hides them is a warning.
var resultOf = map[quarantine.Severity]string{
	quarantine.Blocks: resultFailed, quarantine.Loses: resultWarning, quarantine.Risks: resultWarning, quarantine.Unknown: resultUnknown,
}

// examination is a report under way.
type examination struct {
	c    *Controller
	rep  api.DoctorReport
	seen map[quarantine.Finding]bool
}

func (e *examination) add(name, result, detail, advice string) {
	e.rep.Checks = append(e.rep.Checks, api.DoctorCheck{Name: name, Result: result, Detail: detail, Advice: advice})
}

// findings adds findings about what is called name, each once in a report.
func (e *examination) findings(name, about string, fs []quarantine.Finding) {
	for _, f := range fs {
		if e.seen[f] {
			continue
		}
		e.seen[f] = true
		check := api.DoctorCheck{Name: name, Result: resultOf[f.Severity], Detail: f.Code + ": " + f.Text, Advice: f.Advice,
			Code: f.Code, Severity: string(f.Severity), Subject: f.Subject}
		switch {
		case f.Code == quarantine.FoundNotInspected && f.Subject == "":
			check.Name = "management"
		case f.Subject == "":
			check.Name = "vhost"
		case f.Subject != about:
			check.Name = "queue " + f.Subject
		}
		e.rep.Checks = append(e.rep.Checks, check)
	}
}

// pin holds the broker against the one that the store belongs to.
func (e *examination) pin(now quarantine.Pin) (same bool) {
	var pinned quarantine.Pin
	known := false
	err := e.c.log.View(func(v ledger.View) (err error) {
		pinned, known, err = quarantine.Pinned(v)
		return err
	})
	switch {
	case err != nil:
		e.add("pin", resultFailed, err.Error(), "")
		return false
	case !known:
		e.add("pin", resultOK, "not yet tied to a broker; the first capture does that", "")
	case !pinned.Same(now):
		e.add("pin", resultFailed, "this data directory belongs to "+pinned.String(), "correct broker.url; or, when this move is meant or the broker was renamed: redrive source pin --why TEXT")
		return false
	default:
		e.add("pin", resultOK, "this data directory belongs to it", "")
	}
	return true
}

func (e *examination) source(ctx context.Context, src quarantine.Source, queue string) {
	name := "source " + queue
	d, err := src.Depth(ctx, queue)
	switch {
	case errors.Is(err, quarantine.ErrQueueMissing):
		e.add(name, resultFailed, err.Error(), "check the name, or let its owner declare the queue; redrive never does")
		return
	case err != nil:
		e.add(name, resultUnknown, err.Error(), "")
		return
	}
	in, err := src.Inspect(ctx, queue)
	if err != nil {
		e.add(name, resultOK, ready(d.Ready, d.Kind), "")
		e.findings(name, queue, []quarantine.Finding{{Code: quarantine.FoundNotInspected, Severity: quarantine.Unknown, Subject: queue, Text: err.Error()}})
		return
	}
	e.add(name, resultOK, ready(d.Ready, in.Kind), "")
	e.findings(name, queue, append(in.Findings, e.others(in)...))
}

// others are the consumers that are not this process's own.
func (e *examination) others(in quarantine.Inspection) []quarantine.Finding {
	n := in.Consumers
	e.c.mu.Lock()
	if _, ours := e.c.capturing[in.Queue]; ours {
		n--
	}
	e.c.mu.Unlock()
	if n <= 0 {
		return nil
	}
	return []quarantine.Finding{{Code: quarantine.FoundOtherConsumers, Severity: quarantine.Risks, Subject: in.Queue,
		Text:   fmt.Sprintf("consumers beside this process: %d; what they take is not captured", n),
		Advice: "stop them, or make sure that they are meant to be there"}}
}

func ready(n int, kind string) string {
	text := fmt.Sprintf("%d ready", n)
	if kind != "" {
		text += ", " + kind
	}
	return text
}

func (e *examination) destination(ctx context.Context, rel redrive.Releaser, set config.Destination) {
	d := redrive.Destination{Exchange: set.Exchange, RoutingKey: set.RoutingKey}
	about, name := set.Exchange, "destination exchange "+set.Exchange
	if set.Queue != "" {
		d, about, name = redrive.Destination{RoutingKey: set.Queue}, set.Queue, "destination "+set.Queue
	}
	before := len(e.rep.Checks)
	route, err := rel.Route(ctx, d)
	if err != nil {
		e.add(name, resultUnknown, err.Error(), "")
		return
	}
	if !route.Exists {
		e.add(name, resultWarning, "it does not exist: a release to it is refused", "check the name, or let its owner declare it; redrive never does")
		return
	}
	anyKey := set.Exchange != "" && set.RoutingKey == ""
	var found []quarantine.Finding
	for _, f := range route.Findings {
		// Without a fixed key every message brings its own.
		if !anyKey || f.Code != quarantine.FoundNoRoute {
			found = append(found, f)
		}
	}
	var parts []string
	if set.Queue != "" && route.Ready >= 0 {
		parts = append(parts, ready(route.Ready, route.Kind))
	}
	if route.Receivers != nil && !anyKey && set.Queue == "" {
		parts = append(parts, fmt.Sprintf("key %q reaches %s", set.RoutingKey, receiversText(route.Receivers)))
	}
	result, advice := resultOK, ""
	if route.Consumers == 0 {
		result, advice = resultWarning, "start its consumers before a release"
		parts = append(parts, "no consumer at this moment")
	}
	if len(parts) == 0 {
		parts = append(parts, "it exists")
	}
	e.add(name, result, strings.Join(parts, ", "), advice)
	if route.Denied != "" {
		e.add(name, resultWarning, deniedText(&route), deniedAdvice)
	}
	e.findings(name, about, found)
	// Captures need no destination, and a start refuses by itself.
	for i := before; i < len(e.rep.Checks); i++ {
		if e.rep.Checks[i].Result == resultFailed {
			e.rep.Checks[i].Result = resultWarning
		}
	}
}

// receiversText names the queues that get a copy.
func receiversText(queues []string) string {
	if len(queues) == 0 {
		return "no queue"
	}
	return strings.Join(queues, ", ")
}
