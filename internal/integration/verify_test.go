package integration

import (
	"syscall"
	"testing"

	"github.com/redrivehq/redrive/internal/api"
)

// TestVerifyWhileALedgerGrows verifies against a trusted key while another
// process holds the store and has written what no checkpoint covers yet.
func TestVerifyWhileALedgerGrows(t *testing.T) {
	v := newEmbedded(t)
	v.publish("orders.dlq", parcels(0, 5)...)
	s := newSite(t, v.config())
	p := s.hold("capture", "--follow")
	eventually(t, "the capture", func() bool { return len(s.envelopes()) == 5 })
	s.ok("envelope", "annotate", "#1", "--note", "seen")
	r := ask[api.VerifyResult](s, "ledger", "verify", "--replay", "--payloads", "--pub", s.path("keys/verifier"))
	if r.ExitCode != 0 || len(r.Incomplete) > 0 || len(r.Mismatches) > 0 {
		t.Errorf("verify: %+v", r)
	}
	p.kill()
}

// TestShortCommandsHostNobody lets a capture begin while a verification holds
// the store for a moment: the verification must end all the same, and the
// capture goes on by itself.
func TestShortCommandsHostNobody(t *testing.T) {
	v := newEmbedded(t)
	v.publish("orders.dlq", parcels(0, 800)...)
	s := newSite(t, v.config())
	s.ok("capture", "--prefetch", "500")
	for range 2 {
		short := s.hold("ledger", "verify", "--replay", "--payloads")
		long := s.start("capture", "--follow")
		short.exits(0)
		eventually(t, "the capture to hold the store", func() bool { return long.ended() || s.holder() == long.cmd.Process.Pid })
		s.ok("envelope", "show", "#1") // through the capture
		long.signal(syscall.SIGTERM)
		long.wait()
	}
}
