package docs

import (
	"regexp"
	"strings"
	"testing"
)

// TestContents holds the table of contents of docs/operating.md to its
// headings, and every link inside the document to a heading. Renew it with:
// go test ./internal/docs -write.
func TestContents(t *testing.T) {
	const path = "../../docs/operating.md"
	anchors := map[string]int{}
	tail := generated(t, path, "contents", func(tail string) (list string) {
		list, anchors = contents(tail)
		return list
	})
	for _, m := range regexp.MustCompile(`\]\(#([^)]*)\)`).FindAllStringSubmatch(tail, -1) {
		if anchors[m[1]] != 1 {
			t.Errorf("%s: a link leads to #%s, which is the place of %d headings", path, m[1], anchors[m[1]])
		}
	}
}

// contents lists the headings of the second and third level, and how often each
// place to link to is there.
func contents(text string) (list string, anchors map[string]int) {
	var b strings.Builder
	anchors = map[string]int{}
	fence := regexp.MustCompile("(?s)\n```.*?\n```")
	for _, m := range regexp.MustCompile(`(?m)^(###?) (.+)$`).FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		place := anchor(m[2])
		anchors[place]++
		b.WriteString(strings.Repeat("  ", len(m[1])-2) + "- [" + m[2] + "](#" + place + ")\n")
	}
	return "\n" + b.String() + "\n", anchors
}

// anchor is the place that readers of Markdown make of a heading.
func anchor(heading string) string {
	kept := regexp.MustCompile(`[^\p{L}\p{N}_ -]`).ReplaceAllString(strings.ToLower(heading), "")
	return strings.ReplaceAll(kept, " ", "-")
}
