package redrive_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/redrivehq/redrive/redrive"
)

// stopsAt is the number of outcomes after which the ratio rule stops a run in
// which each fails with probability p, 0 when it lets all of them pass. It looks
// after each outcome.
func stopsAt(seed uint64, p float64, outcomes int) int {
	rnd := rand.New(rand.NewPCG(seed, 2026_12_1))
	bad := uint64(0)
	for n := 1; n <= outcomes; n++ {
		if rnd.Float64() < p {
			bad++
		}
		if redrive.RatioBreach(bad, uint64(n)) {
			return n
		}
	}
	return 0
}

// The seeds are 0 to 999, as they were before anybody looked at a result.
func TestRatioRuleTellsGoodFixesFromBadOnes(t *testing.T) {
	const runs = 1000
	wrong := 0
	for seed := range uint64(runs) {
		if stopsAt(seed, 0.02, 10_000) > 0 {
			wrong++
		}
	}
	if wrong > 3 {
		t.Errorf("with 2 %% failing %d of %d runs were stopped, at most 3 may be", wrong, runs)
	}
	by34, by55 := 0, 0
	for seed := range uint64(runs) {
		if n := stopsAt(seed, 0.3, 55); n > 0 {
			by55++
			if n <= 34 {
				by34++
			}
		}
	}
	if by34 < 940 || by55 < 980 {
		t.Errorf("with 30 %% failing %d of %d were stopped by outcome 34 and %d by outcome 55; want 940 and 980", by34, runs, by55)
	}
	t.Logf("2 %%: %d stopped; 30 %%: %d by outcome 34, %d by outcome 55", wrong, by34, by55)
}

func TestWilsonIsExact(t *testing.T) {
	for n := uint64(1); n <= 300; n++ {
		for bad := range n + 1 {
			for _, z := range []uint64{196, 258} {
				for _, permille := range []uint64{1, 50, 100, 500, 999, 1000} {
					x, m, zz := float64(bad), float64(n), float64(z)/100
					lower := (x + zz*zz/2 - zz*math.Sqrt(x*(m-x)/m+zz*zz/4)) / (m + zz*zz)
					limit := float64(permille) / 1000
					if math.Abs(lower-limit) < 1e-9 {
						continue // a float does not tell
					}
					if got := redrive.WilsonAbove(bad, n, permille, z); got != (lower > limit) {
						t.Fatalf("%d of %d, z %d, limit %d: %v, the bound is %v", bad, n, z, permille, got, lower)
					}
				}
			}
		}
	}
}

func TestThresholdsHaveOneSpelling(t *testing.T) {
	for text, want := range map[string]string{"rejected=5%": "rejected=5%", "rejected=2.5%": "rejected=2.5%", "rejected=02.50%": "rejected=2.5%",
		"nacked=3": "nacked=3", "confirm_latency=10s": "confirm_latency=10000ms", "abort=100%": "abort=100%"} {
		th, err := redrive.ParseThresholds([]string{text})
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, s := range th.List() {
			found = found || s == want
		}
		if again, err := redrive.ParseThresholds(th.List()); err != nil || !found || len(again.List()) != len(th.List()) {
			t.Errorf("%s is spelled %v (%v), want %s", text, th.List(), err, want)
		}
	}
	for _, text := range []string{"rejected=NaN%", "rejected=Inf%", "rejected=-1%", "rejected=0%", "rejected=101%", "rejected=5", "rejected=2.55%", "nacked=0",
		"nacked=-1", "nacked=1.5", "nacked=NaN", "nacked=1e9999", "confirm_latency=0s", "confirm_latency=-1s", "confirm_latency=1", "nothing=1", "nacked", ""} {
		if th, err := redrive.ParseThresholds([]string{text}); err == nil {
			t.Errorf("%q is taken as %v", text, th)
		}
	}
}
