package integration

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrivehq/redrive/internal/rabbittest"
)

// brokerUser is whose password is the canary.
const brokerUser = "redrive"

// grants remembers for which vhosts the broker user has permissions: one call
// of rabbitmqctl takes a second or two, whatever it does.
var grants struct {
	mu sync.Mutex
	to map[*rabbittest.Node]map[string]bool
}

// rabbit is a vhost of the shared node, as the applications around redrive use
// it.
type rabbit struct {
	t     testing.TB
	node  *rabbittest.Node
	url   string // of the applications, with their credentials
	vhost string
	conn  *amqp.Connection
}

func newRabbit(t testing.TB) *rabbit {
	t.Helper()
	return rabbitOn(t, rabbittest.Shared(t))
}

// rabbitOn takes a vhost of a node.
func rabbitOn(t testing.TB, node *rabbittest.Node) *rabbit {
	t.Helper()
	r := &rabbit{t: t, node: node}
	r.url = r.node.VHost(t)
	u, err := url.Parse(r.url)
	if err != nil {
		t.Fatal(err)
	}
	r.vhost = strings.TrimPrefix(u.Path, "/")
	r.grant()
	r.conn = r.dial()
	return r
}

// grant lets the broker user into every vhost that there is.
func (r *rabbit) grant() {
	r.t.Helper()
	grants.mu.Lock()
	defer grants.mu.Unlock()
	if grants.to[r.node][r.vhost] {
		return
	}
	add := ""
	if grants.to == nil {
		grants.to = map[*rabbittest.Node]map[string]bool{}
	}
	if grants.to[r.node] == nil {
		grants.to[r.node] = map[string]bool{}
		add = `rabbit_auth_backend_internal:add_user(<<"` + brokerUser + `">>, <<"` + canary + `">>, <<"test">>), `
	}
	out := r.node.Ctl(r.t, "eval", add+fmt.Sprintf(`lists:foreach(fun(V) -> ok = rabbit_auth_backend_internal:set_permissions(
		<<"%s">>, V, <<".*">>, <<".*">>, <<".*">>, <<"test">>), io:format("~s~n", [V]) end, rabbit_vhost:list_names()).`, brokerUser))
	for _, v := range strings.Fields(out) {
		grants.to[r.node][v] = true
	}
}

// dial opens a connection that ends with the test.
func (r *rabbit) dial() *amqp.Connection {
	r.t.Helper()
	conn, err := amqp.Dial(r.url)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (r *rabbit) channel() *amqp.Channel {
	r.t.Helper()
	ch, err := r.conn.Channel()
	if err != nil {
		r.t.Fatal(err)
	}
	return ch
}

// config is a configuration for this vhost; more is added at its end.
func (r *rabbit) config(more string) string { return r.configAt(r.node.Addr(), more) }

func (r *rabbit) configAt(addr, more string) string {
	return fmt.Sprintf(`version: 1
broker: {url: "amqp://%s/%s", user: %s, password_file: password}
sources:
  - {queue: orders.dlq, prefetch: 100}
policy:
  version: "7"
  default_owner: Fulfillment on-call
  reasons:
    schema_invalid:     {class: permanent, owner: Orders API team}
    unknown_sku:        {class: permanent, owner: Catalog team}
    downstream_timeout: {class: transient, owner: Fulfillment team}
    worker_crash:       {class: consumer_defect, owner: Fulfillment on-call}
approvals: {planner_up_to: 100000}
store: {min_free_mib: 16}
brake: {hold_down: 1ms, watch: [none]}
%s`, addr, r.vhost, brokerUser, more)
}

// declareOrders makes the reference topology: a quorum queue whose dead letters
// go to another one.
func (r *rabbit) declareOrders() {
	r.t.Helper()
	ch := r.channel()
	defer ch.Close()
	for _, q := range []struct {
		name string
		args amqp.Table
	}{
		{"orders.dlq", amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 20}},
		{"orders", amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 5,
			"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders.dlq"}},
	} {
		if _, err := ch.QueueDeclare(q.name, true, false, false, false, q.args); err != nil {
			r.t.Fatal(err)
		}
	}
}

// publish publishes to a queue and waits for all confirms.
func (r *rabbit) publish(queue string, messages ...amqp.Publishing) {
	r.t.Helper()
	ch := r.channel()
	defer ch.Close()
	if err := ch.Confirm(false); err != nil {
		r.t.Fatal(err)
	}
	var confirms []*amqp.DeferredConfirmation
	for _, m := range messages {
		m.DeliveryMode = amqp.Persistent
		c, err := ch.PublishWithDeferredConfirm("", queue, true, false, m)
		if err != nil {
			r.t.Fatal(err)
		}
		confirms = append(confirms, c)
	}
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	for _, c := range confirms {
		if ok, err := c.WaitContext(ctx); !ok || err != nil {
			r.t.Fatalf("publish to %s: acked %v, %v", queue, ok, err)
		}
	}
}

// ready is how many messages wait in a queue.
func (r *rabbit) ready(queue string) int { return r.look(queue).Messages }

// consumers is how many consumers a queue has.
func (r *rabbit) consumers(queue string) int { return r.look(queue).Consumers }

func (r *rabbit) look(queue string) amqp.Queue {
	r.t.Helper()
	ch := r.channel()
	defer ch.Close()
	q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return q
}

// verdict is what a worker does with a message.
type verdict int

const (
	take   verdict = iota // done: acknowledged
	refuse                // rejected: dead-lettered by the broker
)

// worker consumes a queue with manual acknowledgement until it is stopped.
type worker struct {
	r    *rabbit
	conn *amqp.Connection
	ch   *amqp.Channel
	done chan struct{}

	mu    sync.Mutex
	taken []amqp.Delivery
	bad   []amqp.Delivery
}

// work starts a consumer of a queue. Handle may use the channel to publish.
func (r *rabbit) work(queue string, handle func(ch *amqp.Channel, d amqp.Delivery) verdict) *worker {
	r.t.Helper()
	w := &worker{r: r, conn: r.dial(), done: make(chan struct{})}
	var err error
	if w.ch, err = w.conn.Channel(); err != nil {
		r.t.Fatal(err)
	}
	if err := w.ch.Qos(50, 0, false); err != nil {
		r.t.Fatal(err)
	}
	in, err := w.ch.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	go func() {
		defer close(w.done)
		for d := range in {
			v := handle(w.ch, d)
			w.mu.Lock()
			if v == take {
				w.taken = append(w.taken, d)
			} else {
				w.bad = append(w.bad, d)
			}
			w.mu.Unlock()
			if v == take {
				err = d.Ack(false)
			} else {
				err = d.Reject(false)
			}
			if err != nil {
				return // the connection is gone; the broker delivers again
			}
		}
	}()
	r.t.Cleanup(w.stop)
	return w
}

func (w *worker) stop() {
	_ = w.conn.Close()
	<-w.done
}

// counts are how many messages were taken and refused so far.
func (w *worker) counts() (taken, refused int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.taken), len(w.bad)
}

// ids counts the taken messages by their message id.
func (w *worker) ids() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[string]int{}
	for _, d := range w.taken {
		out[d.MessageId]++
	}
	return out
}
