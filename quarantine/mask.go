package quarantine

import (
	"fmt"
	"regexp"
)

// Mask replaces what looks sensitive in text that is shown to people.
type Mask struct {
	name string
	re   *regexp.Regexp
}

// NewMask compiles a mask. The pattern is RE2, at most 256 bytes.
func NewMask(name, pattern string) (Mask, error) {
	if len(pattern) > 256 {
		return Mask{}, fmt.Errorf("mask %s: the pattern has %d bytes, at most 256 are allowed", name, len(pattern))
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return Mask{}, fmt.Errorf("mask %s: %w", name, err)
	}
	return Mask{name, re}, nil
}

// DefaultMasks hide passwords and tokens in the usual spellings, authorization
// headers, user parts of URLs, and phone numbers.
func DefaultMasks() []Mask {
	return []Mask{
		{"credential", regexp.MustCompile(`(?i)((?:password|passwd|secret|token|api[-_]?key|authorization)["']?\s*[:=]\s*["']?(?:bearer\s+|basic\s+)?)[^\s"',;&]+`)},
		{"url", regexp.MustCompile(`(://[^\s:/@]*:)[^\s/@]+(@)`)},
		{"phone", regexp.MustCompile(`(\+\d{2})\d{4,11}(\d{2})\b`)},
	}
}

// ApplyMasks replaces what the masks find by ***, keeping the groups that they
// capture.
func ApplyMasks(text string, masks []Mask) string {
	for _, m := range masks {
		text = m.re.ReplaceAllString(text, "${1}***${2}")
	}
	return text
}
