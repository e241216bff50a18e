package predicate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/predicate"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
)

var now = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)

func engine(tb testing.TB) *predicate.Engine {
	tb.Helper()
	e, err := predicate.New()
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

// subject is an order that died an hour ago.
func subject(tb testing.TB, body string) quarantine.Subject {
	tb.Helper()
	ms := func(at time.Time) uint64 { return uint64(at.UnixMilli()) }
	props, err := amqpwire.Build(amqpwire.View{Present: amqpwire.ContentType | amqpwire.Priority | amqpwire.Headers, ContentType: "application/json", Priority: 5,
		Headers: []amqpwire.Field{amqpwire.StringField("retries", "5"), {Name: "n", Value: amqpwire.Value{Kind: amqpwire.Int64, Data: int64(5)}},
			{Name: "eta", Value: amqpwire.Value{Kind: amqpwire.Void}}, amqpwire.StringField("retries", "6"), amqpwire.StringField("bytes", "\xff"),
			amqpwire.ArrayField("list", amqpwire.Value{Kind: amqpwire.Str, Data: "a"})}})
	if err != nil {
		tb.Fatal(err)
	}
	return quarantine.Subject{No: 1, Class: "permanent", Reason: "unknown_sku", Owner: "catalog", Original: &quarantine.Original{Properties: props, Body: []byte(body)},
		Facts: &quarantine.Facts{Queue: "orders.dlq", DiedQueue: "orders", Attempt: 2, Attempts: -1, Captured: ms(now), FirstDied: ms(now.Add(-time.Hour)),
			Operation: "order-7", BodySize: uint64(len(body))}}
}

func match(tb testing.TB, text string, s quarantine.Subject) (bool, error) {
	tb.Helper()
	p, err := engine(tb).Compile(text, now)
	if err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
	return p.Match(s)
}

func TestConditions(t *testing.T) {
	const body = `{"id":9007199254740993,"big":18446744073709551615,"huge":123456789012345678901234567890,"amount":1.10,"five":5.0,
		"none":null,"empty":"","tags":["a","b"],"twice":1,"twice":2,"sku":"SKU-88"}`
	for text, want := range map[string]bool{
		`true`:                        true,
		`env.reason == "unknown_sku"`: true,
		`env.queue == "orders.dlq" && env.died == "orders" && env.class == "permanent" && env.owner == "catalog"`: true,
		`env.attempt == 2`:                        true,
		`has(env.attempts)`:                       false,
		`has(env.trace_id) || env.trace_id != ""`: false,
		`has(env.published)`:                      false,
		`has(env.published) && env.published < timestamp("2020-01-01T00:00:00Z")`: false,
		`now - env.first_died == duration("1h")`:                                  true,
		`now - env.first_died > duration("2h")`:                                   false,
		`now == timestamp("2026-12-01T00:00:00Z")`:                                true,
		`env.operation.startsWith("order-")`:                                      true,
		`body.id == 9007199254740993`:                                             true,
		`body.id == 9007199254740992`:                                             false,
		`body.big == 18446744073709551615u`:                                       true,
		`body.huge == "123456789012345678901234567890"`:                           true,
		`body.amount > 1.09 && body.amount < 1.11`:                                true,
		`body.five == 5`:                                                          true,
		`body.none == null`:                                                       true,
		`has(body.none) && !has(body.absent)`:                                     true,
		`body.empty == ""`:                                                        true,
		`body.empty == null`:                                                      false,
		`"b" in body.tags && size(body.tags) == 2`:                                true,
		`body.sku.matches("^SKU-[0-9]+$")`:                                        true,
		`double(headers.retries) >= 5.0 && double(headers.n) >= 5.0`:              true,
		`headers.n >= 5`:                                                          true,
		`headers.retries == "5"`:                                                  true, // the first of two
		`has(headers.eta) && headers.eta == null`:                                 true,
		`"absent" in headers`:                                                     false,
		`headers.bytes == b"\xff"`:                                                true,
		`headers.list[0] == "a"`:                                                  true,
		`properties.priority == 5 && properties["content_type"] == "application/json"`: true,
		`has(properties.message_id)`:    false,
		`body.tags.exists(x, x == "b")`: true,
	} {
		if got, err := match(t, text, subject(t, body)); err != nil || got != want {
			t.Errorf("%s: %v %v, want %v", text, got, err, want)
		}
	}
}

// A body that is no JSON, or that is gone, is null: that is no error, and has
// can be asked of it.
func TestNoBody(t *testing.T) {
	gone := subject(t, "")
	gone.Original = nil
	for name, s := range map[string]quarantine.Subject{"text": subject(t, "hello"), "empty": subject(t, ""), "two values": subject(t, "{} {}"),
		"cut": subject(t, `{"a":`), "gone": gone} {
		for text, want := range map[string]bool{`body == null`: true, `has(body.x)`: false, `has(body.x) && body.x == 1`: false} {
			if got, err := match(t, text, s); err != nil || got != want {
				t.Errorf("%s: %s: %v %v", name, text, got, err)
			}
		}
	}
	if got, err := match(t, `body.x == 1`, subject(t, "\ufeff{\"x\":1}")); err != nil || !got {
		t.Errorf("a byte order mark: %v %v", got, err)
	}
	if got, err := match(t, `has(headers.x) || has(properties.type)`, gone); err != nil || got {
		t.Errorf("gone: %v %v", got, err)
	}
}

// The words of an error hold nothing of the message.
func TestErrors(t *testing.T) {
	const secret = "tops3cret"
	body := `{"a":"` + secret + `","twice":1,"twice":2,"list":[1],"n":9223372036854775807}`
	deep := strings.Repeat("[", 300) + strings.Repeat("]", 300)
	for text, c := range map[string]struct{ body, want string }{
		`body.absent == 1`:                  {body, "not there"},
		`body[body.a] == 1`:                 {body, "not there"},
		`int(body.a) == 1`:                  {body, "cannot be converted"},
		`timestamp(body.a) == now`:          {body, "cannot"},
		`duration(body.a) > duration("1s")`: {body, "cannot be converted"},
		`body.a > 1`:                        {body, "another type"},
		`body.a && true`:                    {body, "another type"},
		`body.twice == 1`:                   {body, "stands twice"},
		`body.list[4] == 1`:                 {body, "element"},
		`body.list.a == 1`:                  {body, ""},
		`body.n + 1 > 0`:                    {body, "too large"},
		`body.n / 0 > 0`:                    {body, "divides by zero"},
		`env.published > now`:               {body, "has(env.published)"},
		`body == 1`:                         {deep, "deeper than"},
		`size(body) > 1`:                    {strings.Repeat(" ", predicate.MaxBody+1), "more than"},
		`body.all(x, body.all(y, body.all(z, x != y || y != z || true)))`: {"[" + strings.Repeat("1,", 300) + "1]", "more work"},
	} {
		got, err := match(t, text, subject(t, c.body))
		if err == nil || got || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v %v, want %q", text, got, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%s tells the content: %v", text, err)
		}
	}
}

// What cannot work is refused before anything runs.
func TestRefused(t *testing.T) {
	long := `env.reason in [` + strings.Repeat(`"aaaaaaaaaa",`, 200) + `""]`
	nested := `[1,2,3,4,5,6,7,8,9,10]`
	costly := "true"
	for i := range 7 {
		costly = fmt.Sprintf(`%s.all(x%d, %s)`, nested, i, costly)
	}
	for text, want := range map[string]string{
		``:                          "wrong",
		`env.reason = "x"`:          "wrong",
		`env.colour == "x"`:         "undefined field",
		`envelope.reason == "x"`:    "wrong",
		`env.attempt == "2"`:        "no matching overload",
		`env.reason`:                "want bool",
		`body.flag`:                 "want bool",
		`"x".matches(body.pattern)`: "constant",
		`env.reason.matches("` + strings.Repeat("a", 257) + `")`: "at most 256",
		`env.reason.matches("(a{1,1000}){1,1000}")`:              "wrong",
		`env.reason.matches("(")`:                                "wrong",
		long:                                                     "at most 2048",
		costly:                                                   "at most 1000000",
	} {
		if p, err := engine(t).Compile(text, now); err == nil || p != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", text, err, want)
		}
	}
}

// An expression that names only env does not need the original.
func TestContent(t *testing.T) {
	for text, want := range map[string]bool{`env.reason == "a"`: false, `now > env.captured`: false, `has(body.a)`: true, `"a" in headers`: true,
		`[1].all(body, body == 1)`: true, `size(properties) > 1`: true} {
		p, err := engine(t).Compile(text, now)
		if err != nil {
			t.Fatal(text, err)
		}
		if p.Content() != want {
			t.Errorf("%s: %v", text, p.Content())
		}
	}
}

func FuzzPredicate(f *testing.F) {
	e := engine(f)
	f.Add(`body.a == 1`, []byte(`{"a":1}`), []byte{})
	f.Add(`headers.x == "1" || properties.priority > 3`, []byte(`x`), []byte{0x20, 0, 0, 0, 0, 4, 1, 'a', '?', 0xff})
	f.Add(`body.all(x, x > 1)`, []byte(`[1,2]`), []byte{0, 0})
	f.Fuzz(func(t *testing.T, text string, body, props []byte) {
		p, err := e.Compile(text, now)
		if err != nil {
			if p != nil {
				t.Error("an error and a predicate")
			}
			return
		}
		s := subject(t, "")
		s.Original = &quarantine.Original{Properties: props, Body: body}
		one, err := p.Match(s)
		two, again := p.Match(s)
		if one != two || (err == nil) != (again == nil) || err != nil && one {
			t.Errorf("%s gives %v %v, and then %v %v", text, one, err, two, again)
		}
	})
}
