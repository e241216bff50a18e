package integration

import (
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/api"
)

// killer ends the program at a frame of its capture.
type killer struct {
	victim atomic.Pointer[process]
	kills  atomic.Int64
}

// now kills the program that is under way. The frame that it was sent or has
// sent goes nowhere.
func (k *killer) now() verb {
	if p := k.victim.Swap(nil); p != nil {
		k.kills.Add(1)
		p.kill()
	}
	return stop
}

// capture runs a capture, and reports whether it was killed.
func (k *killer) capture(c *capturing, args ...string) (p *process, killed bool) {
	c.t.Helper()
	p = c.site.start(append([]string{"capture", "--queue", "orders.dlq"}, args...)...)
	k.victim.Store(p)
	p.wait()
	k.victim.Store(nil)
	return p, p.code == -1
}

// TestKilledBeforeAnySettlement kills the program each time that it is about to
// settle its first message, or has just been sent one, as a supervisor does that
// starts it again and again where it runs out of memory. After three times it
// does not ask for messages any more.
func TestKilledBeforeAnySettlement(t *testing.T) {
	for _, c := range []struct {
		name string
		at   func(frame) bool
		safe int // messages that are in the store by then
	}{
		{"between commit and settlement", func(f frame) bool { return f.up && f.is(basic, ack) }, 1},
		{"before the commit", func(f frame) bool { return !f.up && f.is(basic, deliver) }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var k killer
			var mended atomic.Bool
			x := newCapturing(t, func(l *link, f frame) verb {
				if l.queue == "orders.dlq" && !mended.Load() && c.at(f) {
					return k.now()
				}
				return pass
			})
			x.publish("orders.dlq", 30)
			for i := range 25 {
				p, killed := k.capture(x)
				if killed != (i < 3) {
					t.Fatalf("start %d: killed %v, exit %d\n%s", i, killed, p.code, p.err.String())
				}
				if i >= 3 && (p.code != 3 || !strings.Contains(p.err.String(), "sessions_lost")) {
					t.Fatalf("start %d: exit %d\n%s", i, p.code, p.err.String())
				}
			}
			if p := x.parked("orders.dlq", "sessions_lost"); !strings.Contains(p.Why, "the processes before this one ended") {
				t.Errorf("status says why: %s", p.Why)
			}
			if n := len(x.site.envelopes()); n != c.safe {
				t.Errorf("%d are in the store, want %d", n, c.safe)
			}
			// Killed for the fourth time, by a person's wish.
			if _, killed := k.capture(x, "--unpark"); !killed {
				t.Error("--unpark tried nothing")
			}
			if p, killed := k.capture(x); killed || p.code != 3 {
				t.Errorf("after a failed --unpark: killed %v, exit %d", killed, p.code)
			}
			if most, left := x.deliveries("orders.dlq"); most != 4 || left != 30 {
				t.Errorf("%d messages are left, delivered %d times at most; want all 30, and 4", left, most)
			}
			mended.Store(true)
			x.site.ok("capture", "--unpark")
			t.Logf("%d possible duplicates", x.whole())
		})
	}
}

// TestKilledWhileItGetsOn kills the program 25 times at random moments of a
// capture that settled something before: in the middle of batches, between
// commit and settlement, before the commit. Nothing is lost, and nothing is
// parked.
func TestKilledWhileItGetsOn(t *testing.T) {
	want := int64(cuts(t, 25))
	rnd := seeded(t)
	var k killer
	x := newCapturing(t, func(l *link, f frame) verb {
		mine := l.queue != "" && k.kills.Load() < want && (f.up && f.is(basic, ack) || !f.up && f.is(basic, deliver))
		switch {
		case !mine || l.acks == 0:
			return pass // its first settlement passes
		case l.left == 0:
			l.left = 2 + rnd(30)
			return pass
		case l.left > 1:
			l.left--
			return pass
		}
		return k.now()
	})
	x.publish("orders.dlq", int(20*want))
	for k.kills.Load() < want {
		if p, killed := k.capture(x); !killed {
			t.Fatalf("a capture ended by itself after %d kills: exit %d\n%s", k.kills.Load(), p.code, p.err.String())
		}
	}
	most, left := x.deliveries("orders.dlq")
	if most > 10 {
		t.Errorf("a message was delivered %d times", most)
	}
	x.site.ok("capture")
	t.Logf("%d kills, %d left after them, at most %d deliveries of those, %d possible duplicates", k.kills.Load(), left, most, x.whole())
}

// TestKilledAtRandomTimes kills the program again and again at random times after its
// start. It may be parked by that; then a person unparks it. Nothing is lost.
func TestKilledAtRandomTimes(t *testing.T) {
	want := cuts(t, 12)
	rnd := seeded(t)
	x := newCapturing(t, nil)
	parked := 0
	for kills := 0; kills < want; {
		x.publish("orders.dlq", 60)
		args := []string{"capture", "--queue", "orders.dlq", "--prefetch", "3"}
		if len(ask[api.StatusInfo](x.site, "status").Parked) > 0 {
			parked++
			args = append(args, "--unpark")
		}
		p := x.site.start(args...)
		select {
		case <-p.done:
		case <-time.After(time.Duration(rnd(int(300 * time.Millisecond)))): // the random moment
		}
		p.kill()
		if p.code == -1 {
			kills++
		}
	}
	eventually(t, "what was in flight to come back", func() bool { return x.r.ready("orders.dlq")+len(x.site.envelopes()) >= len(x.sent["orders.dlq"]) })
	most, left := x.deliveries("orders.dlq")
	if most > 10 {
		t.Errorf("a message was delivered %d times", most)
	}
	x.site.ok("capture", "--unpark")
	t.Logf("%d kills, parked %d times, %d left after them, at most %d deliveries of those, %d possible duplicates", want, parked, left, most, x.whole())
}

// TestStoppedAgainAndAgain ends the program in order, as a supervisor does, each
// time in the middle of a capture. What it holds then is stored and not given
// back, which would spend a delivery of each.
func TestStoppedAgainAndAgain(t *testing.T) {
	want := cuts(t, 12)
	rnd := seeded(t)
	var k killer // of which only the victim is used
	x := newCapturing(t, func(l *link, f frame) verb {
		if l.queue == "" || f.up || !f.is(basic, deliver) {
			return pass
		}
		switch l.left {
		case 0:
			l.left = 2 + rnd(30)
		case 1:
			if p := k.victim.Swap(nil); p != nil {
				p.signal(syscall.SIGTERM)
			}
		default:
			l.left--
		}
		return pass
	})
	x.publish("orders.dlq", 60*want)
	for range want {
		p := x.site.start("capture", "--queue", "orders.dlq", "--follow", "--prefetch", "10")
		k.victim.Store(p)
		p.exits(0)
	}
	most, left := x.deliveries("orders.dlq")
	for _, e := range x.site.envelopes() {
		most = max(most, int(e.DeliveryCount))
	}
	if most > 1 {
		t.Errorf("a message was given back %d times", most)
	}
	x.site.ok("capture")
	if n := x.whole(); n > 0 {
		t.Errorf("%d possible duplicates after orderly stops", n)
	}
	t.Logf("%d stops, %d left after them", want, left)
}
