package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/proxy"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
	"github.com/redrivehq/redrive/quarantine/worker"
)

// now is the time of these tests.
func now() time.Time { return time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC) }

func message() *worker.Message {
	return &worker.Message{Queue: "orders", RoutingKey: "orders", Body: []byte(`{"order":1}`), ID: "m-1", Type: "order.placed", Operation: "order-1", Run: 2,
		View: amqpwire.View{Present: amqpwire.Headers | amqpwire.ContentType, ContentType: "application/json", Headers: []amqpwire.Field{
			amqpwire.StringField("x-shop", "kölln 100%"), amqpwire.StringField("x-\"quoted\"", "a\r\nX-Redrive-Run: 9"), amqpwire.StringField("x-long", strings.Repeat("s", 5000))}}}
}

// said is what a failure comes to.
type said struct {
	class     string // "done", "other error", or the class
	code      string
	reason    string
	text      string // somewhere in its text
	after     time.Duration
	reference string
}

// check holds an answer against what is wanted.
func check(t *testing.T, err error, m *worker.Message, want said) {
	t.Helper()
	var f *worker.Failure
	switch {
	case want.class == "done":
		if err != nil || m.Effect != want.reference {
			t.Errorf("%v, effect %q; want it done with effect %q", err, m.Effect, want.reference)
		}
		return
	case want.class == "time-out":
		if !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &f) {
			t.Errorf("%v, want the end of the time-out alone, so that the worker counts it", err)
		}
		return
	case !errors.As(err, &f):
		t.Fatalf("%v is no failure of a class", err)
	}
	class := f.Class.String()
	if strings.HasPrefix(fmt.Sprint(worker.Duplicate("")), f.Error()) {
		class = "duplicate"
	}
	got := said{class: class, code: f.Code, reason: f.Reason, after: f.After, reference: f.Reference, text: want.text}
	if got != want || !strings.Contains(f.Error(), want.text) {
		t.Errorf("%+v %q\nwant %+v", got, f.Error(), want)
	}
}

// answering is a service that answers everything in one way.
func answering(t *testing.T, h http.HandlerFunc) worker.Handler {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return handler(t, s.URL+"/orders")
}

func handler(t *testing.T, address string) worker.Handler {
	t.Helper()
	h, err := proxy.HTTP(address, now)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestAnswers has a row for every row of the table in the package comment.
func TestAnswers(t *testing.T) {
	problem := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body) // the client sees what is missing
		}
	}
	later := func(status int, after string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", after)
			w.WriteHeader(status)
		}
	}
	const transient, systemic, permanent, unknown = "transient", "systemic", "permanent", "unclassified"
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   said
	}{
		"200":                    {problem(200, ""), said{class: "done"}},
		"204":                    {problem(204, ""), said{class: "done"}},
		"201 with an effect":     {problem(201, `{"reference":"shipment 7"}`), said{class: "done", reference: "shipment 7"}},
		"200 that says it fails": {problem(200, `{"class":"permanent"}`), said{class: "done"}},
		"302":                    {later(302, ""), said{class: systemic, code: "302", text: "302"}},
		"400":                    {problem(400, "no"), said{class: permanent, code: "400", text: "400 Bad Request"}},
		"404":                    {problem(404, ""), said{class: permanent, code: "404"}},
		"422":                    {problem(422, ""), said{class: permanent, code: "422"}},
		"408":                    {problem(408, ""), said{class: transient, code: "408"}},
		"409":                    {problem(409, ""), said{class: "duplicate", code: "409"}},
		"409 with a reference":   {problem(409, `{"reference":"shipment 7"}`), said{class: "duplicate", code: "409", reference: "shipment 7"}},
		"425":                    {problem(425, ""), said{class: transient, code: "425"}},
		"429":                    {problem(429, ""), said{class: systemic, code: "429"}},
		"429 after seconds":      {later(429, "7"), said{class: systemic, code: "429", after: 7 * time.Second}},
		"429 after nonsense":     {later(429, "-7"), said{class: systemic, code: "429"}},
		"500":                    {problem(500, ""), said{class: transient, code: "500"}},
		"502":                    {problem(502, ""), said{class: transient, code: "502"}},
		"503":                    {problem(503, ""), said{class: transient, code: "503"}},
		"503 after seconds":      {later(503, "30"), said{class: systemic, code: "503", after: 30 * time.Second}},
		"503 at a date":          {later(503, now().Add(time.Minute).Format(http.TimeFormat)), said{class: systemic, code: "503", after: time.Minute}},
		"503 after a year":       {later(503, "31536000"), said{class: systemic, code: "503", after: time.Hour}},
		"599":                    {problem(599, ""), said{class: transient, code: "599"}},

		"a class, a reason, a code": {problem(422, `{"class":"business_rejection","reason":"blocked_customer","code":"B-17","detail":"blocked"}`), said{class: "business_rejection", reason: "blocked_customer", code: "B-17", text: "blocked"}},
		"a code that is a number":   {problem(500, `{"class":"permanent","code":132000}`), said{class: permanent, code: "132000"}},
		"an effect in doubt":        {problem(500, `{"class":"ambiguous_effect","reference":"payment 4"}`), said{class: "ambiguous_effect", code: "500", reference: "payment 4"}},
		"a defect of the consumer":  {problem(501, `{"class":"consumer_defect"}`), said{class: "consumer_defect", code: "501"}},
		"systemic by class":         {problem(500, `{"class":"systemic","retry_after":2.5}`), said{class: systemic, code: "500", after: 2500 * time.Millisecond}},
		"duplicate by class":        {problem(422, `{"class":"duplicate"}`), said{class: "duplicate", code: "422"}},
		"a title":                   {problem(400, `{"title":"no such part"}`), said{class: permanent, code: "400", text: "no such part"}},
		"a class that is none":      {problem(500, `{"class":"unlucky","reason":"r"}`), said{class: transient, code: "500", reason: "r"}},
		"a class of the wrong kind": {problem(500, `{"class":7}`), said{class: transient, code: "500"}},
		"malformed":                 {problem(400, `{"class":"transient"`), said{class: permanent, code: "400"}},
		"oversized":                 {problem(400, `{"class":"transient","detail":"`+strings.Repeat("x", 70<<10)+`"}`), said{class: permanent, code: "400"}},
		"oversized and done":        {problem(200, strings.Repeat("x", 1<<20)), said{class: "done"}},
		"breaks off within the answer": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, `{"class":`) // less than announced
		}, said{class: transient, code: "500"}},
		"breaks off before the answer": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, said{class: unknown, code: "no_answer"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := message()
			check(t, answering(t, c.answer)(t.Context(), m), m, c.want)
		})
	}
}

func TestNoAnswer(t *testing.T) {
	t.Run("refused", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := l.Addr().String()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		err = handler(t, "http://"+address+"/?token=hush")(t.Context(), message())
		check(t, err, nil, said{class: "systemic", code: "unreachable", text: "refused"})
		if strings.Contains(err.Error(), "hush") {
			t.Errorf("%v quotes the address", err)
		}
	})
	t.Run("hung", func(t *testing.T) {
		end := make(chan struct{})
		h := answering(t, func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
			case <-end:
			}
		})
		defer close(end)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		check(t, h(ctx, message()), nil, said{class: "time-out"})
	})
	t.Run("not HTTP", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(c, "220 mail.example ready\r\n") // whoever asks gives up
				_ = c.Close()
			}
		}()
		t.Cleanup(func() { _ = l.Close() }) // nobody waits for it
		check(t, handler(t, "http://"+l.Addr().String())(t.Context(), message()), nil, said{class: "unclassified", code: "no_answer"})
	})
}

func TestQuestion(t *testing.T) {
	var got http.Header
	var body []byte
	h := answering(t, func(_ http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		body, _ = io.ReadAll(r.Body) // compared below
	})
	if err := h(t.Context(), message()); err != nil {
		t.Fatal(err)
	}
	if string(body) != `{"order":1}` {
		t.Errorf("body %q", body)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json", "X-Redrive-Queue": "orders", "X-Redrive-Message-Id": "m-1", "X-Redrive-Type": "order.placed",
		"X-Redrive-Operation": "order-1", "Idempotency-Key": "order-1", "X-Redrive-Run": "2", "X-Redrive-Redelivered": "false",
		"X-Redrive-Headers":          `{"x-shop":"k%C3%B6lln 100%25","x-\"quoted\"":"a\r\nX-Redrive-Run: 9"}`,
		"X-Redrive-Headers-Left-Out": "1",
	} {
		if got.Get(name) != want {
			t.Errorf("%s: %q, want %q", name, got.Get(name), want)
		}
	}
	if v, there := got["X-Redrive-Key"]; there {
		t.Errorf("a key that is not known: %q", v)
	}
}

func TestHandlersThatAreNone(t *testing.T) {
	for _, address := range []string{"", "ftp://h/", "http://", "http://user:hush@h/", "http://%zz", "/path"} {
		_, err := proxy.HTTP(address, now)
		if !errors.Is(err, proxy.ErrHandler) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%q: %v", address, err)
		}
	}
	for _, words := range [][]string{nil, {""}, {"/no/such/program"}} {
		if _, err := proxy.Command(words); !errors.Is(err, proxy.ErrHandler) {
			t.Errorf("%q: %v", words, err)
		}
	}
}

func TestCommand(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		want   said
	}{
		"done":                {`cat > /dev/null`, said{class: "done"}},
		"does not read":       {`exit 0`, said{class: "done"}},
		"done with an effect": {`echo noise; echo '{"reference":"shipment 7"}'`, said{class: "done", reference: "shipment 7"}},
		"says it fails":       {`echo '{"class":"permanent"}'`, said{class: "done"}},
		"permanent":           {`echo "no such part" >&2; exit 65`, said{class: "permanent", code: "65", text: "no such part"}},
		"systemic":            {`exit 69`, said{class: "systemic", code: "69"}},
		"defect":              {`exit 70`, said{class: "consumer_defect", code: "70"}},
		"transient":           {`exit 75`, said{class: "transient", code: "75"}},
		"duplicate":           {`exit 80`, said{class: "duplicate", code: "80"}},
		"rejected":            {`exit 81`, said{class: "business_rejection", code: "81"}},
		"ambiguous":           {`exit 82`, said{class: "ambiguous_effect", code: "82"}},
		"not a program":       {`exit 126`, said{class: "systemic", code: "126"}},
		"not found":           {`exit 127`, said{class: "systemic", code: "127"}},
		"any other":           {`exit 1`, said{class: "unclassified", code: "1"}},
		"a signal":            {`kill -9 $$`, said{class: "unclassified", code: "signal", text: "killed"}},
		"a statement":         {`echo '{"class":"permanent","reason":"unknown_sku","code":404,"detail":"no such part"}'; exit 1`, said{class: "permanent", reason: "unknown_sku", code: "404", text: "no such part"}},
		"a flood":             {`head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2; exit 75`, said{class: "transient", code: "75"}},
		"hung":                {`sleep 100 & wait`, said{class: "time-out"}},
		"what it is told":     {`[ "$REDRIVE_OPERATION $REDRIVE_RUN $(cat)" = 'order-1 2 {"order":1}' ]`, said{class: "done"}},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := proxy.Command([]string{"sh", "-c", c.script})
			if err != nil {
				t.Fatal(err)
			}
			ctx := t.Context()
			if c.want.class == "time-out" {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 200*time.Millisecond)
				defer cancel()
			}
			m := message()
			check(t, h(ctx, m), m, c.want)
		})
	}
}

// What a command has started ends with it when its time has passed.
func TestCommandEndsWithItsChildren(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "alive")
	h, err := proxy.Command([]string{"sh", "-c", `sh -c 'echo $$ > "$0.new"; mv "$0.new" "$0"; sleep 100' "$0" & wait`, pipe})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h(ctx, message()) }()
	var pid string
	for pid == "" {
		b, _ := os.ReadFile(pipe) // not there until the child runs
		pid = strings.TrimSpace(string(b))
		select {
		case err := <-done:
			t.Fatalf("it ended by itself: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	for {
		b, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil || strings.Contains(string(b), ") Z ") {
			return
		}
		select {
		case <-t.Context().Done():
			t.Fatal("the child lives on")
		case <-time.After(time.Millisecond):
		}
	}
}
