package integration

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
)

func caseR65(c *caseRun) {
	m := c.input[0].messages(c.t)[0]
	c.wire(m)
	script := string(m.body)
	out := c.s.ok("envelope", "show", m.id(), "--payload", "--raw", "--why", script).out.String()
	v := amqpwire.Parse(m.props)
	for _, text := range []string{script, m.id(), m.key, v.Type, v.Headers[0].Name, "</script><script>alert(4)</script>", "{{7*7}}${7*7}"} {
		if !strings.Contains(out, text) {
			c.t.Errorf("%s is not shown as what it is:\n%s", text, out)
		}
	}
	// The same words as those of an operator, and as the name of a queue.
	queue := c.input[1].QueueName
	c.raw.Declare(queue)
	again := c.plain(c.input[2].URL2)
	again.direct, again.key = true, queue
	c.raw.Publish("", again.key, again.props, again.body)
	c.s.ok("capture", "--queue", queue)
	id, _ := c.plan("--id", again.id(), "--to-queue", workQueue, "--fix", script, "--as", script)
	c.s.want(5, "generation", "start", id)
	c.unchanged(workQueue, again)
	if out := c.s.ok("generation", "report", id).out.String(); !strings.Contains(out, script) {
		c.t.Errorf("the report does not name the fix:\n%s", out)
	}
	if page := c.s.envelopes("--queue", queue); len(page) != 1 || page[0].Broker.Queue != queue {
		c.t.Errorf("captured from %s: %+v", queue, page)
	}
}

// hostile is what no output may hold: controls but the line feed, and what
// turns text around.
func hostile(r rune) bool {
	return r < 0x20 && r != '\n' || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

func caseR66(c *caseRun) {
	m := c.messages()[0]
	c.open(toWork)
	c.seed(m)
	const queue = "esc\x1b[31m"
	c.raw.Declare(queue)
	v := amqpwire.Parse(m.props)
	evil := string(m.body)
	outcomes := []string{"--generation", m.id(), "--envelope", m.id(), "--intent", "0/1", "--mac", "x", "--outcome", "succeeded"}
	for _, words := range [][]string{
		{"capture"}, {"capture", "--queue", queue}, {"capture", "--queue", "no\x1b[31m"}, {"dlq", "depth", "--queue", queue}, {"dlq", "depth", "--queue", "no\x1b[31m"},
		{"dlq", "peek", "--queue", deadQueue}, {"dlq", "peek", "--queue", queue}, {"dlq", "peek", "--queue", "no\x1b[31m"}, {"dlq", "peek", "--queue", deadQueue, "--id", m.id()},
		{"dlq", "peek", "--queue", deadQueue, "--reason", evil}, {"dlq", "replay", "--queue", queue, "--id", m.id(), "--fix", evil},
		{"dlq", "purge", "--queue", deadQueue, "--id", "no" + m.id(), "--ticket", evil},
		{"envelope", "list"}, {"envelope", "list", "--groups"}, {"envelope", "show", m.id()}, {"envelope", "show", "no" + m.id()},
		{"envelope", "show", "#1", "--payload", "--why", evil}, {"envelope", "show", "#1", "--payload", "--raw", "--why", evil},
		{"envelope", "annotate", "#1", "--note", evil, "--ticket", m.id()}, {"envelope", "list", "--type", v.Type},
		{"generation", "plan", "--id", m.id(), "--fix", evil, "--set-header", "x-note=" + "a\x1b[31m", "--dry-run"},
		{"generation", "plan", "--id", "no" + m.id()}, {"generation", "plan", "--all", "--fix", evil, "--outcome-deadline", "10ms", "--bake", "1ms"},
		{"generation", "approve", "1", "--why", evil}, {"generation", "start", "1"}, {"generation", "show", "1"}, {"generation", "list"}, {"generation", "report", "1"},
		append([]string{"outcome", "report"}, outcomes...), {"ledger", "tail", "--limit", "200"}, {"status"}, {"doctor"}, {evil}, {"--config", evil, "status"},
	} {
		for _, more := range []string{"", "--json", "--verbose"} {
			p := c.s.run(slices.DeleteFunc(append(slices.Clone(words), more), func(w string) bool { return w == "" })...)
			for _, text := range []string{p.out.String(), p.err.String()} {
				if i := strings.IndexFunc(text, hostile); i >= 0 {
					c.t.Errorf("%q prints %q", words, text[i:min(len(text), i+20)])
				}
				for line := range strings.Lines(text) {
					if strings.HasPrefix(line, "FAKE") {
						c.t.Errorf("%q: a message has begun a line: %q", words, text)
					}
				}
			}
			for dec := json.NewDecoder(strings.NewReader(p.out.String())); more == "--json" && dec.More(); {
				if err := dec.Decode(new(any)); err != nil {
					c.t.Fatalf("%q prints no JSON: %v: %s", words, err, p.out.String())
				}
			}
		}
	}
	// A table has one line for each envelope, and JSON loses nothing.
	if n := strings.Count(c.s.ok("envelope", "list").out.String(), "\n"); n != 2 {
		c.t.Errorf("a list of one has %d lines", n)
	}
	e := c.look(m.id())
	if e.Identity.MessageID != m.id() || e.Identity.Type != v.Type || e.Payload.Base64 != base64.StdEncoding.EncodeToString(m.body) {
		c.t.Errorf("JSON shows %q of type %q with body %q", e.Identity.MessageID, e.Identity.Type, e.Payload.Base64)
	}
	for _, h := range v.Headers {
		want, _ := h.Text()
		if i := slices.IndexFunc(e.Payload.Headers, func(x api.Header) bool { return x.Name == h.Name && x.Value == want }); i < 0 {
			c.t.Errorf("JSON does not show header %s as %q: %+v", h.Name, want, e.Payload.Headers)
		}
	}
	c.unchanged(workQueue, m)
}

func caseR67(c *caseRun) {
	in := c.input[0]
	u, err := url.Parse(in.URL)
	must(c.t, err)
	user := u.User.Username()
	password, _ := u.User.Password()
	c.on(newRabbit(c.t))
	c.declare()
	c.r.node.Ctl(c.t, "eval", fmt.Sprintf(`rabbit_auth_backend_internal:add_user(<<"%[1]s">>, <<"%[2]s">>, <<"test">>),
		rabbit_auth_backend_internal:set_permissions(<<"%[1]s">>, <<"%[3]s">>, <<".*">>, <<".*">>, <<".*">>, <<"test">>).`, user, password, c.r.vhost))
	config := func(address string) string {
		return strings.Replace(c.r.config(""), fmt.Sprintf(`{url: "amqp://%s/%s", user: %s, password_file: password}`, c.r.node.Addr(), c.r.vhost, brokerUser),
			fmt.Sprintf(`{url: %q}`, address), 1)
	}
	with := func(userinfo, host, vhost string) string { return "amqp://" + userinfo + "@" + host + "/" + vhost }
	here := c.r.node.Addr()
	good := with(u.User.String(), here, c.r.vhost)
	c.s = newSite(c.t, config(good))
	ms := []message{}
	for i := range 60 {
		ms = append(ms, c.plain("m-"+strconv.Itoa(i)))
	}
	c.seed(ms...)
	c.capture(len(ms))

	secrets := []string{password, url.QueryEscape(password), url.PathEscape(password), strings.TrimPrefix(u.User.String(), user+":"),
		base64.StdEncoding.EncodeToString([]byte(password)), base64.StdEncoding.EncodeToString([]byte("\x00" + user + "\x00" + password)), user + ":S3cr", "S3cr et"}
	spoken := func(p *process) {
		c.t.Helper()
		for _, s := range secrets {
			if strings.Contains(p.out.String()+p.err.String(), s) {
				c.t.Errorf("%s prints %q:\n%s%s", p.description, s, p.out.String(), p.err.String())
			}
		}
	}
	fail := func(address string) {
		c.t.Helper()
		c.s.write("redrive.yaml", config(address))
		for _, words := range [][]string{{"capture", "--verbose"}, {"doctor"}, {"dlq", "depth", "--queue", deadQueue}, {"status", "--json"}} {
			p := c.s.run(words...)
			if words[0] == "capture" && p.code == 0 {
				c.t.Errorf("it captures from where it cannot")
			}
			spoken(p)
		}
		c.s.env = []string{"REDRIVE_BROKER_URL=" + address}
		spoken(c.s.run("capture", "--verbose"))
		c.s.env = nil
		c.s.write("redrive.yaml", config(good))
	}
	tried := map[string]func(){
		"wrong port":     func() { fail(with(u.User.String(), closedPort(c.t), c.r.vhost)) },
		"wrong password": func() { fail(with(user+":S3cr%2Fother", here, c.r.vhost)) },
		"unknown host":   func() { fail(with(u.User.String(), "no-such-host.invalid", c.r.vhost)) },
		"bad vhost":      func() { fail(with(u.User.String(), here, "no-such-vhost")) },
		"URL with a syntax error: amqp://ops:S3cr et@host:port/": func() { fail("amqp://ops:S3cr et@host:port/") },
		"TLS to a plain port": func() { fail(strings.Replace(good, "amqp:", "amqps:", 1)) },
		"kill the broker mid-run": func() {
			wire := newProxy(c.t, here)
			c.s.write("redrive.yaml", config(with(u.User.String(), wire.addr(), c.r.vhost)))
			id, _ := c.plan("--all", "--rate", "40", "--burst", "1")
			p := c.s.hold("generation", "start", id, "--verbose")
			wire.sent(10)
			wire.lose()
			eventually(c.t, "it to miss the broker", func() bool { return p.ended() || strings.Contains(p.err.String(), "not reachable") })
			p.signal(syscall.SIGTERM)
			if p.wait(); p.code != 1 && p.code != 4 { // interrupted, or paused for what was on its way
				c.t.Errorf("without a broker it ends with %d", p.code)
			}
			spoken(p)
			c.s.write("redrive.yaml", config(good))
		},
		"panic path": func() {
			p := c.s.hold("capture", "--follow")
			p.signal(syscall.SIGQUIT) // the runtime prints all goroutines
			p.wait()
			if !strings.Contains(p.err.String(), "goroutine ") {
				c.t.Errorf("no goroutines are printed: %s", p.err.String())
			}
			spoken(p)
		},
	}
	for _, variant := range in.Variants {
		try, ok := tried[variant]
		if !ok {
			c.t.Fatalf("variant %q", variant)
		}
		try()
	}
	var needles [][]byte
	for _, s := range secrets {
		needles = append(needles, []byte(s))
	}
	for _, name := range c.s.filesWith(needles...) {
		if name != "redrive.yaml" {
			c.t.Errorf("the password is in %s of the data directory", name)
		}
	}
	for _, r := range c.s.envelopes() {
		if strings.Contains(fmt.Sprint(r), password) {
			c.t.Errorf("the password is in an envelope")
		}
	}
}

// lose ends all connections, and there will be no more.
func (p *proxy) lose() {
	_ = p.l.Close()
	p.cut()
}

func caseR69(c *caseRun) {
	ms := c.messages()
	n := uint64(len(ms))
	c.open("")
	outcomes := c.r.declareOutcomes()
	c.seedMany(ms...)
	c.capture(len(ms))
	c.balance(map[string]int{"quarantined": 193})
	id, plan := c.plan("--all", "--evidence", "outcomes", "--outcome-deadline", "1h",
		"--threshold", "requarantined=100%", "--threshold", "abort=100%") // all are to go, whatever comes back
	if plan.Selected != n || plan.Members != n {
		c.t.Errorf("plan: %+v", plan)
	}
	w := c.r.work(workQueue, func(ch *amqp.Channel, d amqp.Delivery) verdict {
		if k, _ := strconv.Atoi(strings.TrimPrefix(d.MessageId, "k-")); k < 43 {
			return refuse
		}
		outcomes.report(ch, d, "succeeded")
		return take
	})
	g := answer[api.Generation](c.s.want(5, "generation", "start", id, "--json"))
	checkTally(c.t, g, n, map[string]uint64{"succeeded": 150, "requarantined": 43})
	if taken, refused := w.counts(); taken != 150 || refused != 43 {
		c.t.Errorf("the consumer took %d and refused %d", taken, refused)
	}
	c.balance(map[string]int{"quarantined": 43, "returned": 43, "resolved": 150})
	words := []string{"envelope", "purge", "--ticket", "T-1"}
	for _, e := range c.s.envelopes("--custody", "quarantined")[:10] {
		words = append(words, e.ID)
	}
	c.s.ok(words...)
	c.balance(map[string]int{"quarantined": 33, "returned": 43, "resolved": 150, "purged": 10})
	if g = c.s.show(id); g.State != "closed" {
		c.t.Errorf("it is %s", g.State)
	}
	checkTally(c.t, g, n, map[string]uint64{"succeeded": 150, "requarantined": 43})
	if r := ask[api.Report](c.s, "generation", "report", id); len(r.Remaining) != 1 || r.Remaining[0].Count != 33 {
		c.t.Errorf("what remains: %+v", r.Remaining)
	}
}

// balance compares every count of the store with the custody of its envelopes,
// in each way in which the command line tells it. Each command is a process
// that opens the store anew.
func (c *caseRun) balance(want map[string]int) {
	c.t.Helper()
	sum := 0
	for _, custody := range []string{"quarantined", "released", "returned", "resolved", "purged"} {
		n := len(c.s.envelopes("--custody", custody))
		if n != want[custody] {
			c.t.Errorf("%d %s, want %d", n, custody, want[custody])
		}
		sum += n
	}
	st := ask[api.StatusInfo](c.s, "status")
	ready, known := c.depth(deadQueue)
	groups := ask[api.EnvelopeGrouping](c.s, "envelope", "list", "--groups", "--custody", "quarantined,released")
	open := uint64(want["quarantined"] + want["released"])
	if int(st.Envelopes) != sum || st.Open != open || known != open || ready != 0 || groups.Total != open {
		c.t.Errorf("%d envelopes of %d; open: status %d, depth %d, groups %d, want %d; at the broker %d",
			sum, st.Envelopes, st.Open, known, groups.Total, open, ready)
	}
}

func caseR71(c *caseRun) {
	in := c.input[0]
	c.on(newRabbit(c.t))
	node := c.r.node
	many := regexp.MustCompile(`^(.)\*(\d+)$`)
	for i, vhost := range in.VHosts {
		if vhost != "/" {
			node.Ctl(c.t, "add_vhost", vhost)
		}
		node.Ctl(c.t, "set_permissions", "--vhost", vhost, "guest", ".*", ".*", ".*")
		node.Ctl(c.t, "set_permissions", "--vhost", vhost, brokerUser, ".*", ".*", ".*")
		escaped := url.PathEscape(vhost)
		r := &rabbit{t: c.t, node: node, vhost: escaped, url: "amqp://guest:guest@" + node.Addr() + "/" + escaped}
		r.conn = r.dial()
		c.on(r)
		queues := in.Queues
		if i > 0 {
			queues = queues[3:5] // the names are tried in one vhost, the vhosts with a few
		}
		var names []string
		for _, q := range queues {
			if x := many.FindStringSubmatch(q); x != nil {
				n, err := strconv.Atoi(x[2])
				must(c.t, err)
				q = strings.Repeat(x[1], n)
			}
			names = append(names, q)
		}
		c.names(names)
	}
}

// names runs through the life of a message in each of these queues of a vhost.
func (c *caseRun) names(queues []string) {
	c.t.Helper()
	ch := c.r.channel()
	defer ch.Close()
	declare := func(q string) string {
		x, err := ch.QueueDeclare(q, true, false, false, false, nil)
		must(c.t, err)
		if _, err := ch.QueuePurge(x.Name, false); err != nil {
			c.t.Fatal(err)
		}
		return x.Name // without line breaks, which the broker takes off
	}
	declare("b")
	declare("source")
	control := c.plain("control")
	c.raw.Publish("", "b", control.props, control.body)
	var allow []string
	for i := range queues {
		queues[i] = declare(queues[i])
		name, err := json.Marshal(queues[i])
		must(c.t, err)
		allow = append(allow, `  - {queue: `+string(name)+`}`)
	}
	c.s = newSite(c.t, fmt.Sprintf("version: 1\nbroker: {url: \"amqp://%s/%s\", user: %s, password_file: password}\ndestinations:\n%s\nstore: {min_free_mib: 16}\nbrake: {hold_down: 1ms, watch: [none]}\n",
		c.r.node.Addr(), c.r.vhost, brokerUser, strings.Join(allow, "\n")))
	capture := []string{"capture"}
	for i, q := range queues {
		goes, stays := c.plain("goes-"+strconv.Itoa(i)), c.plain("stays-"+strconv.Itoa(i))
		c.raw.Publish("", "source", goes.props, goes.body)
		c.raw.Publish("", q, stays.props, stays.body)
		if ready, _ := c.depth(q); ready != 1 {
			c.t.Errorf("the depth of %q is %d", q, ready)
		}
		capture = append(capture, "--queue", q)
	}
	if sum := ask[api.CaptureSummary](c.s, append(capture, "--queue", "source")...); sum.Captured != uint64(2*len(queues)) {
		c.t.Errorf("captured %+v", sum)
	}
	for i, q := range queues {
		if page := c.s.envelopes("--queue", q); len(page) != 1 || page[0].Broker.Queue != q || page[0].Identity.MessageID != "stays-"+strconv.Itoa(i) {
			c.t.Errorf("envelopes of %q: %+v", q, page)
		}
		goes := c.plain("goes-" + strconv.Itoa(i))
		id, _ := c.plan("--id", goes.id(), "--to-queue", q)
		c.s.want(5, "generation", "start", id, "--no-wait")
		c.unchanged(q, goes)
	}
	for i, q := range queues {
		if e := c.peek(q, 1).Envelopes[0]; e.Identity.MessageID != "stays-"+strconv.Itoa(i) {
			c.t.Errorf("peek at %q shows %s", q, e.Identity.MessageID)
		}
		c.s.fails(3, `no such envelope`, "dlq", "purge", "--queue", "source", "--id", "stays-"+strconv.Itoa(i), "--ticket", "T-1")
		c.s.ok("dlq", "purge", "--queue", q, "--id", "stays-"+strconv.Itoa(i), "--ticket", "T-1")
		c.s.want(3, "dlq", "peek", "--queue", q)
	}
	for _, e := range c.s.envelopes("--custody", "purged") {
		if !strings.HasPrefix(e.Identity.MessageID, "stays-") && e.Identity.MessageID != "" {
			c.t.Errorf("%s was purged", e.Identity.MessageID)
		}
	}
	c.s.standsBack("capture", "--queue", "no such\nqueue")
	if n := c.r.ready("b"); n != 1 {
		c.t.Errorf("the control queue has %d messages", n)
	}
}

// standsBack runs a command that is refused for a name with a line break: what
// follows it cannot pass for a line of the program.
func (s *site) standsBack(args ...string) {
	s.t.Helper()
	p := s.want(3, args...)
	for line := range strings.Lines(p.err.String()) {
		if !strings.HasPrefix(line, "redrive: ") && !strings.HasPrefix(line, "  ") {
			s.t.Errorf("%s: a name has begun a line: %q", p.description, p.err.String())
		}
	}
}

func caseR73(c *caseRun) {
	c.on(c.ownNode())
	c.declare()
	good := c.r.looking(managementOf(c.t, c.r.node), "")
	c.s = newSite(c.t, good)
	depth := func(code int, queue string) (p *process, ready, open any) {
		c.t.Helper()
		people := c.s.want(code, "dlq", "depth", "--queue", queue)
		p = c.s.want(code, "dlq", "depth", "--queue", queue, "--json")
		if p.out.String() == "" {
			return people, nil, nil
		}
		x := answer[map[string]any](p)
		return people, x["broker_ready"], x["store_open"]
	}
	unknown := func(reason string) {
		c.t.Helper()
		p, ready, _ := depth(3, deadQueue)
		if ready != nil || !strings.Contains(p.out.String(), "unknown") || !regexp.MustCompile(reason).MatchString(p.err.String()) {
			c.t.Errorf("the depth is %v, and people read\n%s%s", ready, p.out.String(), p.err.String())
		}
	}
	publish := func(n int) {
		for i := range n {
			m := c.plain("m-" + strconv.Itoa(i))
			c.raw.Publish("", deadQueue, m.props, m.body)
		}
	}
	tried := map[string]func(){
		// The queue itself is asked, which knows before the statistics do.
		"management stats not yet there": func() {
			publish(7)
			if _, ready, open := depth(0, deadQueue); ready != 7.0 || open != 0.0 {
				c.t.Errorf("ready %v, open %v, want 7 and 0", ready, open)
			}
			c.raw.Drain(deadQueue)
		},
		"30 ready + 20 unacked by another consumer": func() {
			publish(50)
			ch := c.r.channel()
			defer ch.Close()
			must(c.t, ch.Qos(20, 0, false))
			if _, err := ch.Consume(deadQueue, "", false, false, false, false, nil); err != nil {
				c.t.Fatal(err)
			}
			eventually(c.t, "the other consumer to have its twenty", func() bool { return c.r.ready(deadQueue) == 30 })
			if _, ready, open := depth(0, deadQueue); ready != 30.0 || open != 0.0 {
				c.t.Errorf("ready %v, open %v, want 30 and 0", ready, open)
			}
		},
		"queue deleted": func() {
			if p, ready, _ := depth(3, "gone"); ready != nil || !strings.Contains(p.err.String(), `gone`) || strings.Contains(p.err.String(), "unknown") {
				c.t.Errorf("a queue that is not there: %v, %s", ready, p.err.String())
			}
		},
		"broker down": func() {
			c.s.write("redrive.yaml", strings.Replace(good, c.r.node.Addr(), closedPort(c.t), 1))
			unknown(`refused`)
			c.s.write("redrive.yaml", good)
		},
		"no permission (403)": func() {
			c.r.node.Ctl(c.t, "add_user", "stranger-"+c.r.vhost, canary)
			c.s.write("redrive.yaml", strings.Replace(good, "user: "+brokerUser, "user: stranger-"+c.r.vhost, 1))
			unknown(`access|refused|permission`)
			c.s.write("redrive.yaml", good)
		},
		"captured 50, DLQ empty": func() {
			eventually(c.t, "all to be back", func() bool { return c.r.ready(deadQueue) == 50 })
			c.capture(50)
			if _, ready, open := depth(0, deadQueue); ready != 0.0 || open != 50.0 {
				c.t.Errorf("ready %v, open %v, want 0 and 50", ready, open)
			}
			c.s.want(1, "dlq", "depth", "--queue", deadQueue, "--fail-above", "49")
		},
	}
	for _, state := range c.input[0].States {
		try, ok := tried[state]
		if !ok {
			c.t.Fatalf("state %q", state)
		}
		try()
	}
}

func caseR74(c *caseRun) {
	ms := c.messages()
	rnd := newRand(c.t)
	for kind, looks := range map[string]int{"quorum": 30, "classic": 10} {
		c.on(newRabbit(c.t))
		c.raw.Declare(workQueue)
		c.raw.Declare(deadQueue, amqpwire.StringField("x-queue-type", kind))
		c.s = newSite(c.t, c.r.config(toWork))
		c.seed(ms...)
		for i := range looks {
			c.s.ok("dlq", "depth", "--queue", deadQueue)
			c.s.want(3, "dlq", "peek", "--queue", deadQueue)
			if i%10 == 0 {
				c.s.run("doctor")
				c.s.ok("generation", "list")
			}
			for _, verb := range []string{"depth", "peek"} {
				killSoon(c.s.start("dlq", verb, "--queue", deadQueue), rnd, 30*time.Millisecond)
			}
		}
		if n := c.r.ready(deadQueue); n != len(ms) {
			c.t.Fatalf("%s: %d are left of %d", kind, n, len(ms))
		}
		// Nobody has taken one, not even to give it back.
		for i, got := range c.raw.Drain(deadQueue) {
			v := view(got)
			if n, _ := v.Int(amqpwire.HeaderDeliveryCount); n != 0 || got.Redelivered || v.MessageID != ms[i].id() {
				c.t.Errorf("%s: message %d is %q, redelivered %v, delivered %d times before", kind, i, v.MessageID, got.Redelivered, n)
			}
		}
		c.seed(ms...)
		c.capture(len(ms))
		for range looks {
			for i, e := range c.s.envelopes() {
				if e.Identity.MessageID != ms[i].id() || e.Custody != "quarantined" {
					c.t.Errorf("%s: envelope %d is %s, %s", kind, i, e.Identity.MessageID, e.Custody)
				}
			}
			c.s.ok("envelope", "show", "#1", "--payload", "--why", "R74")
			if p := ask[api.Peek](c.s, "dlq", "peek", "--queue", deadQueue, "--limit", "1"); len(p.Envelopes) != 1 || p.Total != uint64(len(ms)) || p.Unlisted != uint64(len(ms)-1) {
				c.t.Errorf("%s: peek shows %+v", kind, p)
			}
		}
		c.release(len(ms), "--all", "--to-queue", workQueue)
		c.unchanged(workQueue, ms...)
	}
}
