package cli

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// what of a story differs from run to run of one seed: digests, and how often
// things were looked at.
var variable = []*regexp.Regexp{
	regexp.MustCompile(`manifest, [0-9a-f]{16}`),
	regexp.MustCompile(`\d+ records, \d+/\d+ checkpoints`),
}

func demoStory(t *testing.T, seed string, more ...string) string {
	t.Helper()
	p := &place{t: t, data: filepath.Join(t.TempDir(), "unused")}
	args := append([]string{"demo", "--seed", seed}, more...)
	out := p.okWithout(args...)
	for _, v := range variable {
		if !v.MatchString(out) {
			t.Errorf("the story lacks %s", v)
		}
		out = v.ReplaceAllString(out, "…")
	}
	return out
}

// okWithout is ok without the data directory of the place.
func (p *place) okWithout(args ...string) string {
	p.t.Helper()
	code, out, errs := p.bare(args...)
	if code != 0 {
		p.t.Fatalf("redrive %s ended with %d: %s", strings.Join(args, " "), code, errs)
	}
	return out
}

func TestDemo(t *testing.T) {
	t.Setenv("REDRIVE_DATA", filepath.Join(t.TempDir(), "not-this"))
	stories := map[string]string{}
	for _, seed := range []string{"1", "2", "3", "4", "5"} {
		story := demoStory(t, seed)
		for other, text := range stories {
			if text == story {
				t.Errorf("seeds %s and %s tell the same", seed, other)
			}
		}
		stories[seed] = story
		for _, word := range []string{"messages captured", "stage_bad", "moved +", "Somebody else approves", "came back", "who owns", "verified: "} {
			if !strings.Contains(story, word) {
				t.Errorf("the story of seed %s lacks %q", seed, word)
			}
		}
	}
	if again := demoStory(t, "1"); again != stories["1"] {
		t.Errorf("seed 1 tells another story the second time:\n%s\n--- and before:\n%s", again, stories["1"])
	}
	if first := demoStory(t, "1", "--as", "somebody"); first != stories["1"] {
		t.Error("--as changes the story")
	}
}
