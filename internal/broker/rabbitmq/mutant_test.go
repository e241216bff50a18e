package rabbitmq

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/broker/rabbitmq/rawamqp"
	"github.com/redrivehq/redrive/internal/rabbittest"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/redrive"
)

// TestWhatPassesTheCheckCostsNothing damages good messages at random. The
// broker closes nothing over one that the driver would send.
func TestWhatPassesTheCheckCostsNothing(t *testing.T) {
	const n = 2000
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	address := rabbittest.Shared(t).VHost(t)
	raw := rawamqp.Dial(t, address)
	caps := mustReleaser(t, mustParse(t, address)).Caps()
	queues := []string{"classic", "quorum", "stream"}
	for _, kind := range queues {
		raw.Declare(kind, amqpwire.StringField("x-queue-type", kind))
	}
	g, r := newGenerator(seed, n), rand.New(rand.NewPCG(seed, 1))
	passed, refused, harmless := 0, 0, 0
	for i := range n {
		queue := queues[i%len(queues)]
		props := g.properties(true)
		if i%4 > 0 { // some are as good as they were
			props = damage(r, props)
		}
		m := redrive.Message{Dest: redrive.Destination{RoutingKey: queue}, Properties: props}
		why, byStream := check(m, caps)
		if why == nil && queue == "stream" {
			why = byStream
		}
		// One in ten of those that are refused is tried, to see that it is not all.
		if why != nil && i%10 != 0 {
			refused++
			continue
		}
		v := raw.Try("", queue, props, nil)
		switch {
		case why != nil:
			refused++
			if !v.Closed() {
				harmless++
				t.Logf("%s: %v: %.60x", queue, why, props)
			}
		case v.Closed():
			t.Errorf("message %d for a %s queue passes the check, and the broker says %+v: %.2000x", i, queue, v, props)
		default:
			passed++
		}
	}
	t.Logf("%d passed, %d were refused, of which the broker would take %d in %d", passed, refused, harmless, refused/10)
	if passed < n/10 || refused < n/10 {
		t.Errorf("%d passed and %d were refused: too few of one to say anything", passed, refused)
	}
}

// damage changes, removes or adds a few bytes.
func damage(r *rand.Rand, b []byte) []byte {
	for range 1 + r.IntN(3) {
		if len(b) == 0 {
			return b
		}
		at := r.IntN(len(b))
		if r.IntN(3) == 0 {
			at = r.IntN(min(len(b), 12)) // flags, and the first lengths
		}
		switch r.IntN(4) {
		case 0:
			b = append(b[:at:at], b[at+1:]...)
		case 1:
			b = append(append(b[:at:at], byte(r.Uint32())), b[at:]...)
		case 2:
			b[at] ^= 1 << r.IntN(8)
		default:
			b[at] = byte(r.Uint32())
		}
	}
	return b
}
