package proxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine/worker"
)

// maxAnswer is how much of an answer is read, in bytes.
const maxAnswer = 64 << 10

// mostPatience bounds how long a handler may ask to be left alone.
const mostPatience = time.Hour

// statement is the JSON object with which a handler can say more than a number.
type statement struct {
	Class      string          `json:"class"`
	Reason     string          `json:"reason"`
	Code       json.RawMessage `json:"code"`
	Detail     string          `json:"detail"`
	Title      string          `json:"title"`
	Reference  string          `json:"reference"`
	RetryAfter float64         `json:"retry_after"`
}

// duplicate is the word of a statement for an effect that is there already.
const duplicate = "duplicate"

// read takes a statement from an answer; the zero one when there is none.
func read(answer []byte) (s statement) {
	if len(answer) > maxAnswer || json.Unmarshal(answer, &s) != nil {
		return statement{}
	}
	if s.Detail == "" {
		s.Detail = s.Title
	}
	return s
}

// code is the error code of the statement, which may be a number.
func (s *statement) code() string {
	var text string
	if json.Unmarshal(s.Code, &text) == nil {
		return text
	}
	var n json.Number
	if json.Unmarshal(s.Code, &n) == nil {
		return n.String()
	}
	return ""
}

// failure is what a class, from the status or the statement, a code and the
// words for people come to.
func (s *statement) failure(class string, code string, after time.Duration, words string) *worker.Failure {
	if _, ok := event.ParseClass(s.Class); ok || s.Class == duplicate {
		class = s.Class
	}
	if c := s.code(); c != "" {
		code = c
	}
	if s.RetryAfter > 0 {
		after = seconds(s.RetryAfter)
	}
	if s.Detail != "" {
		words = s.Detail
	}
	if class == duplicate {
		return worker.Duplicate(s.Reference).WithCode(code)
	}
	known, _ := event.ParseClass(class) // "" is unclassified
	return &worker.Failure{Class: known, Reason: s.Reason, Code: code, Reference: s.Reference, After: after, Err: errors.New(words)}
}

// seconds is a time span that a handler asks for, within bounds.
func seconds(n float64) time.Duration {
	if math.IsNaN(n) || n < 0 {
		return 0
	}
	return time.Duration(min(n, mostPatience.Seconds()) * float64(time.Second))
}

// lastLine is the last line of an output that is not empty.
func lastLine(b []byte) []byte {
	b = bytes.TrimRight(b, " \t\r\n")
	return b[bytes.LastIndexByte(b, '\n')+1:]
}

// tail keeps the last bytes that are written to it, and never blocks.
type tail struct {
	kept []byte
	most int
}

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if extra := len(t.kept) - t.most; extra > 0 {
		t.kept = append(t.kept[:0], t.kept[extra:]...)
	}
	return len(p), nil
}

// readUpTo reads an answer to its end or to the bound. The rest is left unread.
func readUpTo(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxAnswer+1))
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	return b, nil
}

// say joins words for people with what a program said, when it said anything.
func say(words string, said []byte) string {
	if text := strings.TrimSpace(string(said)); text != "" {
		return words + ": " + text
	}
	return words
}
