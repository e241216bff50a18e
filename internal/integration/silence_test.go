package integration

import (
	"testing"

	"github.com/redrivehq/redrive/internal/api"
)

// TestSilenceOfACanaryIsNoAlarm releases for longer than outcomes may take,
// where nobody reports any: what ends as missing there is no sign of harm.
func TestSilenceOfACanaryIsNoAlarm(t *testing.T) {
	v := newEmbedded(t)
	v.publish("orders.dlq", parcels(0, 60)...)
	s := newSite(t, v.config())
	s.ok("capture")
	s.ok("generation", "plan", "--all", "--fix", "none", "--to-queue", "orders", "--bake", "1ms", "--rate", "60", "--outcome-deadline", "100ms")
	s.ok("generation", "approve", "1", "--why", "no-stages")
	g := answer[api.Generation](s.want(5, "generation", "start", "1", "--json"))
	checkTally(t, g, 60, map[string]uint64{"missing": 60})
}
