package integration

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/rabbittest"
)

// managed is a vhost of a node of its own that has the management API.
func managed(t testing.TB, node *rabbittest.Node, vhost string) *rabbit {
	t.Helper()
	u, err := url.Parse(node.URL())
	must(t, err)
	u.Path, u.RawPath = "/"+vhost, "/"+url.PathEscape(vhost)
	r := &rabbit{t: t, node: node, url: u.String(), vhost: url.PathEscape(vhost)}
	r.conn = r.dial()
	return r
}

// newManagedNode starts a node whose broker user may look.
func newManagedNode(t testing.TB) *rabbittest.Node {
	t.Helper()
	node := rabbittest.Start(t, rabbittest.WithManagement(), rabbittest.WithConfig("collect_statistics_interval = 200"))
	node.Ctl(t, "eval", fmt.Sprintf(`application:set_env(rabbit, quorum_tick_interval, 200),
		rabbit_auth_backend_internal:add_user(<<"%[1]s">>, <<"%[2]s">>, <<"test">>),
		rabbit_auth_backend_internal:set_tags(<<"%[1]s">>, [management], <<"test">>),
		rabbit_auth_backend_internal:set_permissions(<<"%[1]s">>, <<"/">>, <<"^$">>, <<".*">>, <<".*">>, <<"test">>).`, brokerUser, canary))
	return node
}

// looking is the configuration with the management API.
func (r *rabbit) looking(management, more string) string {
	return strings.Replace(r.config(more), "password_file: password}", "password_file: password, management: \""+management+"\"}", 1)
}

func managementOf(t testing.TB, node *rabbittest.Node) string {
	t.Helper()
	u, err := url.Parse(node.ManagementURL())
	must(t, err)
	return "http://" + u.Host
}

// leaks are the forms of the broker's password that may stand nowhere.
func leaks() [][]byte {
	out := [][]byte{[]byte(canary)}
	for _, login := range []string{brokerUser + ":" + canary, "\x00" + brokerUser + "\x00" + canary, canary} {
		out = append(out, []byte(base64.StdEncoding.EncodeToString([]byte(login))))
	}
	return out
}

// line is the first check of a report with that name and code.
func line(rep api.DoctorReport, name, code string) *api.DoctorCheck {
	for i := range rep.Checks {
		if rep.Checks[i].Name == name && rep.Checks[i].Code == code {
			return &rep.Checks[i]
		}
	}
	return nil
}

// TestSourceSafety lets doctor and capture look at a RabbitMQ that tells, on a
// topology in which much is lost.
func TestSourceSafety(t *testing.T) {
	node := newManagedNode(t)
	t.Run("what doctor tells", func(t *testing.T) { testDoctorTells(t, node) })
	t.Run("what capture refuses", func(t *testing.T) { testCaptureRefuses(t, node) })
	t.Run("nothing is declared", func(t *testing.T) { testNothingIsDeclared(t, node) })
	t.Run("doctor looks anew", func(t *testing.T) { testDoctorLooksAnew(t, node) }) // the last: it kills the node
}

func testDoctorTells(t *testing.T, node *rabbittest.Node) {
	r := managed(t, node, "/")
	ch := r.channel()
	declare := func(name string, args amqp.Table) {
		t.Helper()
		_, err := ch.QueueDeclare(name, true, false, false, false, args)
		must(t, err)
	}
	declare("orders.dlq", amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int32(20), "x-message-ttl": int32(3_600_000)})
	declare("orders", amqp.Table{"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders.dlq"})
	declare("payments", amqp.Table{"x-dead-letter-exchange": "nowhere"})
	declare("orders.log", amqp.Table{"x-queue-type": "stream"})
	s := newSite(t, r.looking(managementOf(t, node), "destinations:\n  - {queue: orders}\n  - {queue: payments}\n"))
	var rep api.DoctorReport
	eventually(t, "the statistics", func() bool {
		rep = ask[api.DoctorReport](s, "doctor")
		return !slices.ContainsFunc(rep.Checks, func(c api.DoctorCheck) bool { return c.Result == "unknown" })
	})
	for _, want := range []struct{ name, code, result, says string }{
		{"source orders.dlq", "", "ok", "0 ready, quorum"},
		{"source orders.dlq", "message_ttl", "warning", "messages leave it after 1h0m0s; they are lost"},
		{"source orders.dlq", "delivery_limit", "warning", "returned more than 20 times"},
		{"queue orders", "at_most_once", "warning", "it dead-letters at most once"},
		{"vhost", "dlx_missing", "warning", "what dies in payments is lost"},
		{"destination payments", "dlx_missing", "warning", "its dead-letter exchange nowhere does not exist"},
	} {
		c := line(rep, want.name, want.code)
		if c == nil || c.Result != want.result || !strings.Contains(c.Detail, want.says) || want.result == "warning" && c.Advice == "" {
			t.Errorf("%s %s: %+v, want %s that says %q", want.name, want.code, c, want.result, want.says)
		}
	}
	if p := s.ok("doctor"); strings.Count(p.out.String(), "at_most_once") != 1 {
		t.Errorf("a finding is not one line:\n%s", p.out.String())
	}
	p := s.ok("capture")
	for _, says := range []string{"warning: orders.dlq: message_ttl: ", "warning: orders: at_most_once: "} {
		if !strings.Contains(p.err.String(), says) {
			t.Errorf("capture does not say %q on stderr: %s", says, p.err.String())
		}
	}
	if sum := ask[api.CaptureSummary](s, "capture"); len(sum.Queues) != 1 || len(sum.Queues[0].Warnings) < 3 {
		t.Errorf("the summary has no warnings: %+v", sum)
	}

	// What is not known is told once, with what to do, and fails nothing.
	for name, c := range map[string]struct{ config, says string }{
		"not set":  {r.config("destinations:\n  - {queue: orders}\n"), "broker.management is not set"},
		"no tag":   {r.looking(managementOf(t, node), "destinations:\n  - {queue: orders}\n"), "none of the tags"},
		"not it":   {r.looking("http://"+node.Addr(), ""), "not that of a management API"},
		"not open": {r.looking("http://"+closedPort(t), ""), "connection refused"},
	} {
		if name == "no tag" {
			node.Ctl(t, "eval", `rabbit_auth_backend_internal:set_tags(<<"`+brokerUser+`">>, [], <<"test">>).`)
		}
		s.write("redrive.yaml", c.config)
		p := s.ok("doctor")
		if strings.Count(p.out.String(), "not_inspected") != 1 || !strings.Contains(p.out.String(), c.says) {
			t.Errorf("%s:\n%s", name, p.out.String())
		}
	}
	node.Ctl(t, "eval", `rabbit_auth_backend_internal:set_tags(<<"`+brokerUser+`">>, [management], <<"test">>).`)
}

// testCaptureRefuses asks for what would lose messages by itself.
func testCaptureRefuses(t *testing.T, node *rabbittest.Node) {
	r := managed(t, node, "/")
	ch := r.channel()
	_, err := ch.QueueDeclare("fleeting", true, true, false, false, nil)
	must(t, err)
	_, err = ch.QueueDeclare("log", true, false, false, false, amqp.Table{"x-queue-type": "stream"})
	must(t, err)
	r.publish("fleeting", orders(0, 3, "unknown_sku")...)
	r.publish("log", orders(0, 3, "unknown_sku")...)
	s := newSite(t, strings.Replace(r.looking(managementOf(t, node), ""), "{queue: orders.dlq, prefetch: 100}", "{queue: fleeting}\n  - {queue: log}", 1))
	for _, c := range []struct{ queue, code, says string }{
		{"fleeting", "auto_delete", "it deletes itself"}, {"log", "stream", "streams cannot be captured in this version"},
	} {
		s.fails(3, c.says, "capture", "--queue", c.queue)
		rep := answer[api.DoctorReport](s.want(3, "doctor", "--json"))
		if l := line(rep, "source "+c.queue, c.code); l == nil || l.Result != "failed" || !strings.Contains(l.Detail, c.says) {
			t.Errorf("doctor on %s: %+v", c.queue, l)
		}
	}
	if n := r.ready("fleeting"); n != 3 {
		t.Errorf("%d messages are left, want 3", n)
	}
}

// testNothingIsDeclared does everything that redrive does and looks at the
// wire: not one queue, exchange or binding is made, changed or deleted, and the
// management API is only read.
func testNothingIsDeclared(t *testing.T, node *rabbittest.Node) {
	r := managed(t, node, "/")
	ch := r.channel()
	for _, q := range []string{"wire", "wire.dlq"} {
		_, err := ch.QueueDeclare(q, true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
		must(t, err)
	}
	r.publish("wire.dlq", orders(0, 20, "unknown_sku")...)
	var looked, changed atomic.Int64
	p := newWatchingProxy(t, node.Addr(), func(_ *link, f frame) verb {
		switch {
		case !f.up || f.class != queueClass && f.class != exchangeClass:
		case changes(f):
			changed.Add(1)
		default:
			looked.Add(1)
		}
		return pass
	})
	target, err := url.Parse(managementOf(t, node))
	must(t, err)
	var reads, writes atomic.Int64
	forward := httputil.NewSingleHostReverseProxy(target)
	door := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Method == http.MethodGet {
			reads.Add(1)
		} else {
			writes.Add(1)
		}
		forward.ServeHTTP(w, q)
	}))
	defer door.Close()
	config := strings.Replace(r.looking(door.URL, "destinations:\n  - {queue: wire, bake: 1ms, outcome_deadline: 1s}\n"), "{queue: orders.dlq, prefetch: 100}", "{queue: wire.dlq}", 1)
	s := newSite(t, strings.Replace(config, node.Addr(), p.addr(), 1))
	s.ok("doctor")
	s.ok("dlq", "depth", "--queue", "wire.dlq")
	if sum := ask[api.CaptureSummary](s, "capture"); sum.Captured != 20 {
		t.Fatalf("captured %+v", sum)
	}
	s.ok("generation", "plan", "--all", "--to-queue", "wire", "--dry-run")
	s.ok("generation", "plan", "--all", "--to-queue", "wire", "--stages", "20", "--rate", "1000")
	s.ok("generation", "approve", "1", "--why", "no-stages")
	s.want(5, "generation", "start", "1")
	s.ok("doctor")
	if n := r.ready("wire"); n != 20 {
		t.Errorf("%d were released, want 20", n)
	}
	if p.published.Load() < 20 || looked.Load() == 0 || reads.Load() == 0 {
		t.Errorf("published %d, looked %d times by AMQP and %d times by HTTP: the proxies saw nothing", p.published.Load(), looked.Load(), reads.Load())
	}
	if changed.Load() != 0 || writes.Load() != 0 {
		t.Errorf("%d requests to change queues or exchanges by AMQP, %d by HTTP; want none", changed.Load(), writes.Load())
	}

	// The count is one that can count.
	conn, err := amqp.Dial(strings.Replace(r.url, node.Addr(), p.addr(), 1))
	must(t, err)
	defer conn.Close()
	own, err := conn.Channel()
	must(t, err)
	_, err = own.QueueDeclare("wire.own", false, true, false, false, nil)
	must(t, err)
	must(t, own.QueueBind("wire.own", "k", "amq.direct", false, nil))
	must(t, own.ExchangeDeclare("wire.x", "direct", false, true, false, false, nil))
	_, err = own.QueueDelete("wire.own", false, false, false)
	must(t, err)
	if changed.Load() != 4 {
		t.Errorf("4 changes were counted as %d", changed.Load())
	}
}

// exchangeClass is a class of AMQP 0-9-1.
const exchangeClass = 40

// changes reports whether a method of class exchange or queue asks for a
// change: everything does but a passive declaration.
func changes(f frame) bool {
	const declare = 10
	if f.method != declare || len(f.payload) < 2 {
		return true
	}
	rest := f.payload[2:] // behind a reserved short
	for names := map[uint16]int{exchangeClass: 2, queueClass: 1}[f.class]; names > 0; names-- {
		if len(rest) == 0 || len(rest) <= int(rest[0]) {
			return true
		}
		rest = rest[1+int(rest[0]):]
	}
	return len(rest) == 0 || rest[0]&1 == 0
}

// testDoctorLooksAnew asks a process that has had its connections for long,
// after the broker is gone.
func testDoctorLooksAnew(t *testing.T, node *rabbittest.Node) {
	r := managed(t, node, "/")
	_, err := r.channel().QueueDeclare("anew.dlq", true, false, false, false, nil)
	must(t, err)
	s := newSite(t, strings.Replace(r.looking(managementOf(t, node), ""), "{queue: orders.dlq, prefetch: 100}", "{queue: anew.dlq}", 1))
	follow := s.hold("capture", "--follow")
	eventually(t, "the consumer", func() bool {
		q, err := r.channel().QueueDeclarePassive("anew.dlq", true, false, false, false, nil)
		must(t, err)
		return q.Consumers == 1
	})
	rep := ask[api.DoctorReport](s, "doctor")
	if l := line(rep, "source anew.dlq", "other_consumers"); l != nil {
		t.Errorf("our own consumer is taken for somebody else's: %+v", l)
	}
	stranger := r.channel()
	_, err = stranger.Consume("anew.dlq", "", false, false, false, false, nil)
	must(t, err)
	if l := line(ask[api.DoctorReport](s, "doctor"), "source anew.dlq", "other_consumers"); l == nil || !strings.Contains(l.Detail, "beside this process: 1;") {
		t.Errorf("another consumer is told as %+v", l)
	}
	node.Kill(t)
	rep = answer[api.DoctorReport](s.want(3, "doctor", "--json"))
	if l := line(rep, "broker", ""); l == nil || l.Result != "failed" {
		t.Errorf("the broker is gone, and doctor says %+v", l)
	}
	if follow.ended() {
		t.Error("the process that should hold the store has ended: nothing was tested")
	}
	follow.kill()
}
