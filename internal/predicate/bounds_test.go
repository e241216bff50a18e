package predicate_test

import (
	"fmt"
	"strings"
	"testing"
)

// What is deep or wide, as bodies are, is looked into all the same.
func TestDeepAndWideBodies(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200)
	wide := "[" + strings.Repeat("1,", 100_000) + "1]"
	for text, body := range map[string]string{
		`body != null`: deep, `has(body.a.a.a.a.a.a.a.a.a.a.a.a)`: deep, `body == body`: deep,
		`type(body) == list && size(body) == 100001`: wide, `body[100000] == 1`: wide,
	} {
		if got, err := match(t, text, subject(t, body)); err != nil || !got {
			t.Errorf("%s: %v %v", text, got, err)
		}
	}
}

// A value that includes another one twice, again and again, is small in memory
// and without end for who compares it.
func TestSharedValuesAreBounded(t *testing.T) {
	const levels = 40
	text := fmt.Sprintf("a%d == a%d", levels, levels)
	for i := levels; i > 0; i-- {
		text = fmt.Sprintf("[[a%d,a%d]].all(a%d, %s)", i-1, i-1, i, text)
	}
	got, err := match(t, "[1].all(a0, "+text+")", subject(t, "{}"))
	if err == nil || got || !strings.Contains(err.Error(), "more memory") {
		t.Errorf("%v %v", got, err)
	}
}
