package rabbitmq

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrivehq/redrive/internal/broker/rabbitmq/management"
	"github.com/redrivehq/redrive/internal/broker/topology"
	"github.com/redrivehq/redrive/internal/rabbittest"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

// land is a vhost of a broker with a management API.
type land struct {
	testing.TB
	node  *rabbittest.Node
	url   string
	vhost string
	conn  *amqp.Connection
	ch    *amqp.Channel
}

func newLand(t testing.TB, node *rabbittest.Node) *land {
	t.Helper()
	l := &land{TB: t, node: node, url: node.VHost(t)}
	u, err := url.Parse(l.url)
	if err != nil {
		t.Fatal(err)
	}
	l.vhost = strings.TrimPrefix(u.Path, "/")
	conn, err := amqp.Dial(l.url)
	if err != nil {
		t.Fatal(err)
	}
	l.conn = conn
	t.Cleanup(func() { _ = conn.Close() })
	if l.ch, err = conn.Channel(); err != nil {
		t.Fatal(err)
	}
	return l
}

// source and releaser look anew each time.
func (l *land) source() *Source {
	s := mustSource(l, l.config())
	s.survey.age = 0
	return s
}

func (l *land) releaser() *Releaser {
	r := mustReleaser(l, l.config())
	r.survey.age = 0
	return r
}

// config is that of a driver with the management API.
func (l *land) config() Config {
	l.Helper()
	c := mustParse(l, l.url)
	c.Management = &management.Config{URL: "http://" + hostOf(l, l.node.ManagementURL()), User: "guest", Password: func() (string, error) { return "guest", nil }}
	return c
}

// put makes something by the management API, which is faster than rabbitmqctl.
func (l *land) put(path string, body any) {
	l.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		l.Fatal(err)
	}
	req, err := http.NewRequestWithContext(within(l), http.MethodPut, l.node.ManagementURL()+"/api/"+path, bytes.NewReader(b))
	if err != nil {
		l.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header["Idempotency-Key"] = []string{} // see the client of package management
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		l.Fatal(err)
	}
	defer resp.Body.Close()
	if said, _ := io.ReadAll(resp.Body); resp.StatusCode >= 300 {
		l.Fatalf("PUT %s: %s %s", path, resp.Status, said)
	}
}

func (l *land) policy(name, pattern, apply string, definition map[string]any) {
	l.Helper()
	l.put("policies/"+l.vhost+"/"+name, map[string]any{"pattern": pattern, "definition": definition, "apply-to": apply})
}

func (l *land) queue(name string, args amqp.Table) {
	l.Helper()
	if _, err := l.ch.QueueDeclare(name, true, false, false, false, args); err != nil {
		l.Fatal(err)
	}
}

func (l *land) exchange(name, kind string, args amqp.Table) {
	l.Helper()
	if err := l.ch.ExchangeDeclare(name, kind, true, false, false, false, args); err != nil {
		l.Fatal(err)
	}
}

func (l *land) bind(queue, exchange, key string) {
	l.Helper()
	if err := l.ch.QueueBind(queue, key, exchange, false, nil); err != nil {
		l.Fatal(err)
	}
}

// quorum are the arguments of a quorum queue, and more in pairs.
func quorum(more ...any) amqp.Table {
	return table(append([]any{"x-queue-type", "quorum"}, more...)...)
}

func table(pairs ...any) amqp.Table {
	t := amqp.Table{}
	for i := 0; i < len(pairs); i += 2 {
		t[fmt.Sprint(pairs[i])] = pairs[i+1]
	}
	return t
}

// brief are findings as "severity code subject", sorted.
func brief(fs []quarantine.Finding) []string {
	out := []string{}
	for _, f := range fs {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s", f.Severity, f.Code, f.Subject)))
	}
	slices.Sort(out)
	return out
}

// awaits reports whether statistics that have not come yet leave something open.
func awaits(fs []quarantine.Finding) bool {
	return slices.ContainsFunc(fs, func(f quarantine.Finding) bool {
		return f.Severity == quarantine.Unknown && strings.Contains(f.Text, "statistics")
	})
}

// inspect looks until the statistics of all queues are there.
func (l *land) inspect(s *Source, queue string) quarantine.Inspection {
	l.Helper()
	var in quarantine.Inspection
	eventually(l, "the statistics", func() bool {
		var err error
		if in, err = s.Inspect(within(l), queue); err != nil {
			l.Fatal(err)
		}
		return !awaits(in.Findings)
	})
	return in
}

// finds compares the findings that have a subject.
func (l *land) finds(s *Source, queue string, want ...string) {
	l.Helper()
	in := l.inspect(s, queue)
	got := brief(slices.DeleteFunc(slices.Clone(in.Findings), func(f quarantine.Finding) bool { return f.Subject == "" }))
	slices.Sort(want)
	if diff := cmp.Diff(append([]string{}, want...), got); diff != "" {
		l.Errorf("%s (-want +got):\n%s\n%v", queue, diff, in.Findings)
	}
}

func TestInspect(t *testing.T) {
	node := rabbittest.Start(t, rabbittest.WithManagement(), rabbittest.WithConfig("collect_statistics_interval = 200"))
	node.Ctl(t, "eval", "application:set_env(rabbit, quorum_tick_interval, 200).")
	t.Run("sources", func(t *testing.T) { testSources(t, newLand(t, node)) })
	t.Run("feeders", func(t *testing.T) { testFeeders(t, newLand(t, node)) })
	t.Run("routes", func(t *testing.T) { testRoutes(t, newLand(t, node)) })
	t.Run("in force", func(t *testing.T) { testInForce(t, newLand(t, node)) })
	t.Run("names", func(t *testing.T) { testNames(t, newLand(t, node)) })
	t.Run("layout", func(t *testing.T) { testLayout(t, newLand(t, node)) })
	t.Run("layout of others", func(t *testing.T) { testLayoutOfOthers(t, newLand(t, node)) })
	t.Run("layout denied", func(t *testing.T) { testLayoutDenied(t, newLand(t, node)) })
	t.Run("not to be had", func(t *testing.T) { testNotToBeHad(t, newLand(t, node)) })
}

func (l *land) four() bool { return !strings.HasPrefix(l.node.Version(), "3.") }

// testSources looks at queues that are captured, one for each finding.
func testSources(t *testing.T, l *land) {
	l.queue("plain", nil)
	l.queue("stream", table("x-queue-type", "stream"))
	l.queue("short", table("x-max-length", int32(10)))
	l.queue("small", table("x-max-length-bytes", int32(1000), "x-dead-letter-exchange", "", "x-dead-letter-routing-key", "plain"))
	l.queue("refusing", table("x-max-length", int32(10), "x-overflow", "reject-publish"))
	l.queue("old", table("x-message-ttl", int32(600_000)))
	l.queue("unused", table("x-expires", int32(600_000)))
	l.queue("limited", quorum("x-delivery-limit", int32(5)))
	l.queue("default", quorum())
	l.queue("endless", quorum("x-delivery-limit", int32(-1)))
	l.queue("single", table("x-single-active-consumer", true))
	l.queue("policed", nil)
	l.policy("short", "^policed$", "queues", map[string]any{"max-length": 7, "message-ttl": 60000})
	if _, err := l.ch.QueueDeclare("fleeting", true, true, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := l.ch.QueueDeclare("transient", false, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	l.queue("taken", nil)
	if _, err := l.ch.Consume("taken", "", false, true, false, false, nil); err != nil {
		t.Fatal(err)
	}

	s := l.source()
	l.finds(s, "plain")
	l.finds(s, "stream", "blocks stream stream")
	l.finds(s, "short", "loses length_drop_head short")
	l.finds(s, "small", "risks length_drop_head small")
	l.finds(s, "refusing", "loses length_reject_publish refusing")
	l.finds(s, "old", "loses message_ttl old")
	l.finds(s, "unused", "loses queue_expires unused")
	l.finds(s, "limited", "loses delivery_limit limited")
	l.finds(s, "single", "risks single_active_consumer single")
	l.finds(s, "policed", "loses length_drop_head policed", "loses message_ttl policed")
	l.finds(s, "fleeting", "blocks auto_delete fleeting")
	l.finds(s, "transient", "loses not_durable transient")
	l.finds(s, "taken", "blocks exclusive taken")
	if l.four() {
		l.finds(s, "default", "loses delivery_limit default")
		l.finds(s, "endless")
	} else {
		l.finds(s, "default")
		l.finds(s, "endless", "loses delivery_limit endless") // there -1 is less than 0
	}
	if in := l.inspect(s, "taken"); in.Consumers != 1 || in.Kind != "classic" || in.Queue != "taken" || in.At.IsZero() {
		t.Errorf("inspection %+v", in)
	}
	if in := l.inspect(s, "limited"); in.Consumers != 0 || in.Kind != "quorum" {
		t.Errorf("inspection %+v", in)
	}
	if _, err := s.Inspect(within(t), "absent"); !errors.Is(err, quarantine.ErrQueueMissing) {
		t.Errorf("an absent queue: %v", err)
	}
}

// testFeeders looks at the queues that should feed a captured one.
func testFeeders(t *testing.T, l *land) {
	good := []any{"x-dead-letter-exchange", "", "x-dead-letter-routing-key", "dead", "x-dead-letter-strategy", "at-least-once", "x-overflow", "reject-publish"}
	l.queue("dead", nil)
	l.exchange("dlx", "topic", nil)
	l.bind("dead", "dlx", "order.#")
	l.exchange("unbound", "direct", nil)
	l.exchange("hiding", "direct", table("alternate-exchange", "dlx"))
	l.bind("dead", "hiding", "known")
	l.exchange("work", "direct", nil)

	l.queue("good", quorum(good...))
	l.queue("old-good", table("x-dead-letter-exchange", "", "x-dead-letter-routing-key", "dead"))
	l.queue("once", quorum("x-dead-letter-exchange", "", "x-dead-letter-routing-key", "dead"))
	l.queue("falls", quorum("x-dead-letter-exchange", "", "x-dead-letter-routing-key", "dead", "x-dead-letter-strategy", "at-least-once"))
	l.queue("hidden", table("x-dead-letter-exchange", "hiding", "x-dead-letter-routing-key", "known"))
	l.queue("keeps", table("x-dead-letter-exchange", "dlx")) // each message keeps its key
	l.bind("keeps", "work", "order.created")
	l.bind("keeps", "work", "payment.created")
	l.queue("policed", nil)
	l.policy("dlx", "^policed$", "queues", map[string]any{"dead-letter-exchange": "dlx", "dead-letter-routing-key": "order.x", "expires": 600000})
	l.queue("astray", table("x-dead-letter-exchange", "nowhere"))
	l.queue("bound to nothing", table("x-dead-letter-exchange", "unbound"))
	l.queue("elsewhere", table("x-dead-letter-exchange", "", "x-dead-letter-routing-key", "other"))
	l.queue("other", nil)
	l.queue("drops", quorum("x-delivery-limit", int32(3)))

	s := l.source()
	l.finds(s, "dead",
		"loses at_most_once once", "loses strategy_falls_back falls", "risks alternate_exchange hidden",
		"loses dlx_unroutable keeps", "loses queue_expires policed")
	in := l.inspect(s, "dead")
	for _, want := range []struct{ code, text string }{
		{quarantine.FoundDLXMissing, "what dies in astray, bound to nothing is lost"},
		{quarantine.FoundLimitNoDLX, "what is delivered too often in drops is dropped"},
		{quarantine.FoundDLXUnroutable, "payment.created"},
	} {
		if !slices.ContainsFunc(in.Findings, func(f quarantine.Finding) bool {
			return f.Code == want.code && f.Severity == quarantine.Loses && strings.Contains(f.Text, want.text)
		}) {
			t.Errorf("no finding %s says %q: %v", want.code, want.text, in.Findings)
		}
	}
	l.finds(s, "other") // what feeds dead is none of its business

	// A dead letter that finds no way out stays inside.
	l.exchange("closed", "direct", nil)
	l.queue("stuck", quorum("x-dead-letter-exchange", "closed", "x-dead-letter-routing-key", "k", "x-dead-letter-strategy", "at-least-once", "x-overflow", "reject-publish"))
	if err := l.ch.PublishWithContext(within(t), "", "stuck", true, false, amqp.Publishing{Body: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	rel := l.releaser()
	eventually(t, "the message to be rejected", func() bool {
		d, ok, err := l.ch.Get("stuck", false)
		if err != nil {
			t.Fatal(err)
		}
		return ok && d.Reject(false) == nil
	})
	eventually(t, "the dead letter to be seen", func() bool {
		route, err := rel.Route(within(t), redrive.Destination{RoutingKey: "stuck"})
		if err != nil {
			t.Fatal(err)
		}
		return slices.Contains(brief(route.Findings), "risks dead_letters_stuck stuck")
	})
}

// testRoutes looks at destinations.
func testRoutes(t *testing.T, l *land) {
	l.queue("dead", nil)
	l.queue("orders", quorum("x-dead-letter-exchange", "", "x-dead-letter-routing-key", "dead", "x-dead-letter-strategy", "at-least-once", "x-overflow", "reject-publish"))
	l.queue("audit", table("x-dead-letter-exchange", "", "x-dead-letter-routing-key", "dead", "x-message-ttl", int32(60_000)))
	l.queue("full", table("x-dead-letter-exchange", "", "x-dead-letter-routing-key", "dead", "x-max-length", int32(5), "x-overflow", "reject-publish"))
	l.queue("ring", table("x-max-length", int32(5), "x-dead-letter-exchange", "nowhere"))
	l.queue("log", table("x-queue-type", "stream"))
	l.queue("limited", quorum("x-delivery-limit", int32(2)))
	l.exchange("direct", "direct", nil)
	l.exchange("topic", "topic", nil)
	l.exchange("fan", "fanout", nil)
	l.exchange("heads", "headers", nil)
	l.exchange("spare", "topic", table("alternate-exchange", "fan"))
	l.exchange("policed", "topic", nil)
	l.policy("spare", "^policed$", "exchanges", map[string]any{"alternate-exchange": "fan"})
	l.bind("orders", "direct", "o")
	l.bind("orders", "topic", "order.#")
	l.bind("audit", "topic", "#")
	l.bind("orders", "fan", "")
	l.bind("orders", "heads", "o")
	if err := l.ch.ExchangeBind("fan", "to.fan", "topic", false, nil); err != nil {
		t.Fatal(err)
	}
	if err := l.ch.ExchangeDeclare("inner", "direct", true, false, true, false, nil); err != nil {
		t.Fatal(err)
	}
	rel := l.releaser()
	for _, c := range []struct {
		exchange, key string
		receivers     []string
		found         []string
	}{
		{"", "orders", []string{"orders"}, nil},
		{"", "dead", []string{"dead"}, []string{"loses no_dlx dead"}},
		{"", "audit", []string{"audit"}, []string{"risks message_ttl audit"}},
		{"", "full", []string{"full"}, []string{"risks length_reject_publish full"}},
		{"", "ring", []string{"ring"}, []string{"loses dlx_missing ring", "risks length_drop_head ring"}},
		{"", "log", []string{"log"}, []string{"risks stream log"}},
		{"", "limited", []string{"limited"}, []string{"loses limit_without_dlx limited"}},
		{"direct", "o", []string{"orders"}, nil},
		{"direct", "p", []string{}, []string{"blocks no_receiver direct"}},
		{"topic", "order.created", []string{"audit", "orders"}, []string{"risks message_ttl audit"}},
		{"topic", "to.fan", []string{"audit", "orders"}, []string{"risks message_ttl audit"}},
		{"topic", "", []string{"audit"}, []string{"risks message_ttl audit"}},
		{"fan", "any", []string{"orders"}, nil},
		{"heads", "o", nil, []string{"unknown receivers_unknown heads"}},
		{"spare", "k", []string{"orders"}, []string{"risks alternate_exchange spare", "risks no_receiver spare"}},
		{"policed", "k", []string{"orders"}, []string{"risks alternate_exchange policed", "risks no_receiver policed"}},
		{"inner", "k", []string{}, []string{"blocks internal_exchange inner", "blocks no_receiver inner"}},
	} {
		var route redrive.Route
		eventually(t, "the statistics", func() bool {
			var err error
			if route, err = rel.Route(within(t), redrive.Destination{Exchange: c.exchange, RoutingKey: c.key}); err != nil {
				t.Fatal(err)
			}
			return !awaits(route.Findings)
		})
		if !route.Exists {
			t.Errorf("%s %q does not exist", c.exchange, c.key)
		}
		if diff := cmp.Diff(c.receivers, route.Receivers); diff != "" {
			t.Errorf("receivers of %s %q (-want +got):\n%s", c.exchange, c.key, diff)
		}
		if diff := cmp.Diff(append([]string{}, c.found...), brief(route.Findings)); diff != "" {
			t.Errorf("%s %q (-want +got):\n%s\n%v", c.exchange, c.key, diff, route.Findings)
		}
		// What we say about receivers is what the broker does.
		if c.receivers != nil && c.exchange != "" && c.exchange != "inner" {
			l.reaches(c.exchange, c.key, c.receivers)
		}
	}
	route, err := rel.Route(within(t), redrive.Destination{RoutingKey: "absent"})
	if err != nil || route.Exists || len(route.Findings) > 0 || route.Receivers != nil {
		t.Errorf("an absent queue: %+v, %v", route, err)
	}
}

// reaches publishes and looks which queues have it.
func (l *land) reaches(exchange, key string, want []string) {
	l.Helper()
	ch := l.ch
	if err := ch.Confirm(false); err != nil {
		l.Fatal(err)
	}
	c, err := ch.PublishWithDeferredConfirmWithContext(within(l), exchange, key, false, false, amqp.Publishing{Body: []byte("who gets this")})
	if err != nil {
		l.Fatal(err)
	}
	if ok, err := c.WaitContext(within(l)); !ok || err != nil {
		l.Fatalf("publish to %s %q: %v, %v", exchange, key, ok, err)
	}
	got := []string{}
	for _, q := range []string{"audit", "orders"} {
		for {
			_, ok, err := ch.Get(q, true)
			if err != nil {
				l.Fatal(err)
			}
			if !ok {
				break
			}
			got = append(got, q)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		l.Errorf("the broker routes %s %q (-said +done):\n%s", exchange, key, diff)
	}
}

// testInForce holds the rules of inForce against the broker: what a queue does
// when its arguments and its policy differ.
func testInForce(t *testing.T, l *land) {
	l.queue("a", nil)
	l.queue("b", nil)
	both := func(name string, args amqp.Table, policy map[string]any) {
		l.policy(name, "^"+name+"$", "queues", policy)
		l.queue(name, args)
	}
	both("longer", table("x-max-length", int32(2)), map[string]any{"max-length": 4})
	both("shorter", table("x-max-length", int32(4)), map[string]any{"max-length": 2})
	both("dead", table("x-max-length", int32(1), "x-dead-letter-exchange", "", "x-dead-letter-routing-key", "a"),
		map[string]any{"dead-letter-exchange": "", "dead-letter-routing-key": "b"})
	both("classic", table("x-max-length", int32(2), "x-overflow", "reject-publish"), map[string]any{"overflow": "drop-head"})
	both("quorum", quorum("x-max-length", int32(2), "x-overflow", "reject-publish"), map[string]any{"overflow": "drop-head"})
	both("lives", quorum("x-delivery-limit", int32(4)), map[string]any{"delivery-limit": 2})
	both("endless", quorum("x-delivery-limit", int32(-1)), map[string]any{"delivery-limit": 2})

	s := l.source()
	facts := func(name string) (f topology.Queue) {
		t.Helper()
		eventually(t, "the statistics of "+name, func() bool {
			err := s.survey.look(within(t), func(c *chart) error {
				q, err := c.Queue(name)
				if err == nil {
					f = *q
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return f.Incomplete == ""
		})
		return f
	}
	for _, name := range []string{"longer", "shorter"} {
		l.fill(name, 6)
		if got := l.count(name); int64(got) != facts(name).MaxLength {
			t.Errorf("%s keeps %d, and is said to keep %d", name, got, facts(name).MaxLength)
		}
	}
	l.fill("dead", 3)
	eventually(t, "two dead letters", func() bool { return l.count("a")+l.count("b") == 2 })
	if d := facts("dead").DeadLetter; d == nil || l.count(d.RoutingKey) != 2 {
		t.Errorf("dead letters of dead are said to go to %+v; a has %d, b has %d", d, l.count("a"), l.count("b"))
	}
	for _, name := range []string{"classic", "quorum"} {
		refused := l.fill(name, 8) > 0
		if got := facts(name).Overflow; (got == topology.RejectPublish) != refused {
			t.Errorf("%s refuses: %v, and its overflow is said to be %s", name, refused, got)
		}
	}
	for _, name := range []string{"lives", "endless"} {
		l.fill(name, 1)
		want := facts(name).DeliveryLimit
		lives := int64(0)
		for ; lives < 10; lives++ {
			d, ok, err := l.ch.Get(name, false)
			for tries := 0; !ok && err == nil && tries < 50 && l.count(name) > 0; tries++ {
				d, ok, err = l.ch.Get(name, false)
			}
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			if err := d.Nack(false, true); err != nil {
				t.Fatal(err)
			}
		}
		if lives != want+1 {
			t.Errorf("%s delivers %d times, and its limit is said to be %d", name, lives, want)
		}
	}
}

// fill publishes n messages and returns how many the queue refused.
func (l *land) fill(queue string, n int) (refused int) {
	l.Helper()
	if err := l.ch.Confirm(false); err != nil {
		l.Fatal(err)
	}
	for range n {
		c, err := l.ch.PublishWithDeferredConfirmWithContext(within(l), "", queue, true, false, amqp.Publishing{Body: []byte("x"), DeliveryMode: 2})
		if err != nil {
			l.Fatal(err)
		}
		ok, err := c.WaitContext(within(l))
		if err != nil {
			l.Fatal(err)
		}
		if !ok {
			refused++
		}
	}
	return refused
}

// count is how many messages are ready.
func (l *land) count(queue string) int {
	l.Helper()
	q, err := l.ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		l.Fatal(err)
	}
	return q.Messages
}

// testNames asks about queues whose names mean something in an address, in
// vhosts whose names do (R71).
func testNames(t *testing.T, l *land) {
	api, err := management.New(*l.config().Management)
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	names := []string{"a/b", "b", "../../api/overview", "sp ace", "plus+plus", "pct%2F", "q?x=1#f", "\u00fc\u2603", "line\nbreak", "esc\x1b[31m",
		"-rf", "--help", strings.Repeat("n", 255), "\"quoted'", "=cmd|calc", "a%00b", "http://x/", "semi;colon&amp", "*", "...", "./x", `back\slash`}
	for _, vhost := range []string{"/", "team/a", "v %", l.vhost} {
		if vhost != "/" && vhost != l.vhost {
			l.put("vhosts/"+url.PathEscape(vhost), map[string]any{})
			l.put("permissions/"+url.PathEscape(vhost)+"/guest", map[string]any{"configure": ".*", "write": ".*", "read": ".*"})
		}
		conn, err := amqp.DialConfig(l.node.URL(), amqp.Config{Vhost: vhost})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		ch, err := conn.Channel()
		if err != nil {
			t.Fatal(err)
		}
		for i, name := range names {
			// The number tells the queues apart, whatever their names are taken for.
			if _, err := ch.QueueDeclare(name, true, false, false, false, amqp.Table{"x-max-length": int32(i)}); err != nil {
				t.Fatal(err)
			}
			if err := ch.ExchangeDeclare(name, "direct", true, false, false, false, nil); err != nil {
				t.Fatal(err)
			}
			if err := ch.QueueBind(name, fmt.Sprint(i), name, false, nil); err != nil {
				t.Fatal(err)
			}
		}
		for i, name := range names {
			// Brokers take line breaks out of the names that are declared.
			name = strings.ReplaceAll(name, "\n", "")
			q, err := api.Queue(within(t), vhost, name)
			if err != nil {
				t.Errorf("queue %q in %q: %v", name, vhost, err)
				continue
			}
			if n, ok := q.Arguments.Int("x-max-length"); !ok || n != int64(i) {
				t.Errorf("queue %q in %q is taken for number %d, not %d", name, vhost, n, i)
			}
			x, err := api.Exchange(within(t), vhost, name)
			if err != nil || x.Type != "direct" {
				t.Errorf("exchange %q in %q: %+v, %v", name, vhost, x, err)
			}
			bs, err := api.BindingsFrom(within(t), vhost, name)
			if err != nil || len(bs) != 1 || bs[0].Key != fmt.Sprint(i) || bs[0].Destination != name {
				t.Errorf("bindings of %q in %q: %+v, %v", name, vhost, bs, err)
			}
			if bs, err = api.BindingsTo(within(t), vhost, name); err != nil || len(bs) != 2 {
				t.Errorf("bindings to %q in %q: %+v, %v", name, vhost, bs, err)
			}
		}
		all, more, err := api.Queues(within(t), vhost, 1000)
		if err != nil || more || len(all) != len(names) {
			t.Errorf("vhost %q lists %d queues, want %d: %v", vhost, len(all), len(names), err)
		}
		if all, more, err = api.Queues(within(t), vhost, 5); err != nil || !more || len(all) != 5 {
			t.Errorf("vhost %q lists %d queues up to 5, more: %v, %v", vhost, len(all), more, err)
		}
	}
	if _, err := api.Queue(within(t), "/", "absent"); !errors.Is(err, management.ErrNotFound) {
		t.Errorf("an absent queue: %v", err)
	}
	if all, _, err := api.Queues(within(t), newLand(t, l.node).vhost, 10); err != nil || len(all) != 0 {
		t.Errorf("an empty vhost lists %v: %v", all, err)
	}
}

// testNotToBeHad looks without a management API, and at ones that do not help.
func testNotToBeHad(t *testing.T, l *land) {
	l.queue("short", table("x-max-length", int32(10)))
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"product_name": "RabbitMQ", "cluster_name": "somewhere else"}`))
	}))
	defer other.Close()
	for _, c := range []struct {
		name         string
		change       func(*Config)
		text, advice string
	}{
		{"not set", func(c *Config) { c.Management = nil }, "broker.management is not set", "set broker.management"},
		{"nobody there", func(c *Config) { c.Management.URL = "http://127.0.0.1:1" }, "does not answer: dial: connect: connection refused", "rabbitmq_management is enabled"},
		{"another cluster", func(c *Config) { c.Management.URL = other.URL }, `it is that of cluster "somewhere else"`, "check broker.management"},
		{"the port of AMQP", func(c *Config) { c.Management.URL = "http://" + l.node.Addr() }, "", "check broker.management"},
		{"a wrong password", func(c *Config) { c.Management.Password = func() (string, error) { return "wrong", nil } }, `the log-in of user "guest" was refused`, "broker.management_user"},
		{"no tag", func(c *Config) { c.Management.User, c.Management.Password = "tagless", c.Password }, "has none of the tags management", "broker.management_user"},
	} {
		if c.name == "no tag" {
			l.put("users/tagless", map[string]any{"password": "guest", "tags": ""})
		}
		conf := l.config()
		c.change(&conf)
		s := mustSource(t, conf)
		in, err := s.Inspect(within(t), "short")
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(in.Findings, func(f quarantine.Finding) bool { return f.Code == quarantine.FoundNotInspected })
		if i < 0 || !strings.Contains(in.Findings[i].Text, c.text) || !strings.Contains(in.Findings[i].Advice, c.advice) {
			t.Fatalf("%s: %+v", c.name, in.Findings)
		}
		for _, f := range in.Findings {
			if f.Severity != quarantine.Unknown {
				t.Errorf("%s: what is not known is told as %+v", c.name, f)
			}
		}
		route, err := mustReleaser(t, conf).Route(within(t), redrive.Destination{RoutingKey: "short"})
		if err != nil || len(route.Findings) != 1 || route.Findings[0] != in.Findings[i] {
			t.Errorf("%s: route %+v, %v", c.name, route, err)
		}
	}
}

func hostOf(t testing.TB, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}
