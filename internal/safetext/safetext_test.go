package safetext

import (
	"strings"
	"testing"
)

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"plain é 日本 €":         "plain é 日本 €",
		"a\nb\tc\r":            `a\nb\tc\r`,
		"\x1b[31mred\x1b[0m":   `\x1b[31mred\x1b[0m`,
		"\x1b]8;;http://x\x07": `\x1b]8;;http://x\a`,
		"\u202egnp.exe":        `\u202egnp.exe`,
		"a\u200bb":             `a\u200bb`,
		"\u0085\u009b31m":      `\u0085\u009b31m`,
		"bad\xff\xc3":          `bad\xff\xc3`,
		"a\u00a0b":             `a\u00a0b`,
		"\U000e0041":           `\U000e0041`,
	} {
		if got := Clean(in); got != want {
			t.Errorf("Clean(%q) = %q, want %q", in, got, want)
		}
	}
	if got := Block("a\x1b\nb"); got != "a\\x1b\nb" {
		t.Errorf("Block: %q", got)
	}
}

func FuzzClean(f *testing.F) {
	f.Add("\x1b[0m")
	f.Fuzz(func(t *testing.T, s string) {
		got := Clean(s)
		if strings.ContainsFunc(got, func(r rune) bool { return r < 0x20 || r >= 0x7f && r < 0xa0 }) {
			t.Fatalf("a control character is left in %q", got)
		}
		if Clean(got) != got {
			t.Fatalf("not stable: %q", got)
		}
	})
}
