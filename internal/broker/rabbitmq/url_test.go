package rabbitmq

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseURL(t *testing.T) {
	for _, tt := range []struct {
		url, hosts, vhost, user, password string
	}{
		{"amqp://u:p@127.0.0.1:5672/v", "127.0.0.1:5672", "v", "u", "p"},
		{"amqp://u:p@localhost", "localhost:5672", "/", "u", "p"},
		{"amqp://u:p@localhost/", "localhost:5672", "/", "u", "p"},
		{"amqp://u:p@localhost//", "localhost:5672", "/", "u", "p"},
		{"amqp://u:p@localhost/%2F", "localhost:5672", "/", "u", "p"},
		{"AMQP://u:p@localhost/a%2Fb%20c", "localhost:5672", "a/b c", "u", "p"},
		{"amqps://u:p@rabbit.example", "rabbit.example:5671", "/", "u", "p"},
		{"amqps://u:p@a,b:5,[::1],[::1]:7/v", "a:5671 b:5 [::1]:5671 [::1]:7", "v", "u", "p"},
		{"amqp://u%40x:p%3A%2F%3F%23%25+@localhost", "localhost:5672", "/", "u@x", "p:/?#%+"},
		{"amqp://u:@localhost", "localhost:5672", "/", "u", ""},
		{"amqp://:p@localhost", "localhost:5672", "/", "guest", "p"},
		{"amqp://u:p:q@localhost", "localhost:5672", "/", "u", "p:q"},
		{"amqp://u:p@10.0.0.1?allow_plaintext=true", "10.0.0.1:5672", "/", "u", "p"},
	} {
		c, err := ParseURL(tt.url)
		if err != nil {
			t.Errorf("%s: %v", tt.url, err)
			continue
		}
		password, err := c.Password()
		if got := strings.Join(c.Hosts, " "); err != nil || got != tt.hosts || c.VHost != tt.vhost || c.User != tt.user || password != tt.password {
			t.Errorf("%s: hosts %s, vhost %q, user %q, password %q, %v", tt.url, got, c.VHost, c.User, password, err)
		}
	}
	c, err := ParseURL("amqps://u:p@h?heartbeat=30&dial_timeout=2s&rpc_timeout=3s&max_message_bytes=77&cacertfile=%2Fca&certfile=/c&keyfile=/k&server_name=n")
	if err != nil || c.Heartbeat != 30*time.Second || c.DialTimeout != 2*time.Second || c.RPCTimeout != 3*time.Second ||
		c.MaxMessage != 77 || *c.TLS != (TLS{"/ca", "/c", "/k", "n"}) {
		t.Errorf("%v %+v %v", c, c.TLS, err)
	}
}

const canary = "hunter2canary"

func TestParseURLRefusesWithoutQuoting(t *testing.T) {
	for _, tt := range []struct{ url, want string }{
		{"http://u:" + canary + "@localhost", "begin with"},
		{canary, "begin with"},
		{"amqp://u:" + canary + "?x@localhost/v", "parameter 1 is not KEY=VALUE"},
		{"amqp://u:p@localhost?" + canary + "=1", "parameter 1 is unknown"},
		{"amqp://u:p@localhost?verify=verify_none", "parameter 1 is unknown"},
		{"amqp://u:p@localhost?cacertfile=/x", "parameter 1 is unknown"},
		{"amqp://u:p@localhost?heartbeat=5&heartbeat=6", "given twice"},
		{"amqp://u:p@localhost?heartbeat", "not KEY=VALUE"},
		{"amqp://u:p@localhost?heartbeat=0", "heartbeat"},
		{"amqp://u:p@localhost?heartbeat=4", "heartbeat"},
		{"amqp://u:p@localhost?heartbeat=" + canary, "heartbeat"},
		{"amqp://u:p@localhost?rpc_timeout=" + canary, "rpc_timeout"},
		{"amqp://u:p@localhost?rpc_timeout=1h", "time-out"},
		{"amqp://u:p@localhost?max_message_bytes=-1", "max_message_bytes"},
		{"amqp://u:p@localhost?allow_plaintext=" + canary, "allow_plaintext"},
		{"amqp://u:p@localhost#" + canary, "fragment"},
		{"amqp://u:" + canary + "%zz@localhost", "percent-encoded"},
		{"amqp://u:" + canary + "@x@localhost", "percent-encoded"},
		{"amqp://u:p@localhost/a/" + canary, "one percent-encoded segment"},
		{"amqp://u:p@localhost/%zz" + canary, "one percent-encoded segment"},
		{"amqp://u:p@localhost:99999", "port"},
		{"amqp://u:p@localhost:" + canary, "port"},
		{"amqp://u:p@", "host 1"},
		{"amqp://u:p@localhost,,x", "host 2"},
		{"amqp://localhost", "no password"},
		{"amqp://u@localhost", "no password"},
		{"amqp://u:" + canary + "@rabbit.example", "another machine"},
		{"amqp://u:" + canary + "@127.0.0.1,10.1.2.3", "host 2 is another machine"},
		{"amqps://u:" + canary + "@h?certfile=/c", "both"},
		{"amqp://u:p@localhost/" + strings.Repeat("v", 256), "vhost has 256 bytes"},
	} {
		c, err := ParseURL(tt.url)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), canary) || c.Password != nil {
			t.Errorf("%s: %v", tt.url, err)
		}
	}
}

func TestConfigIsPrintedWithoutPassword(t *testing.T) {
	c := mustParse(t, "amqps://us%2Fer:"+canary+"@a:1,b:2/v%2Fh")
	if got := c.Redacted(); got != "amqps://us%2Fer@a:1,b:2/v%2Fh" {
		t.Errorf("redacted: %s", got)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		for _, arg := range []any{c, &c, []Config{c}} {
			if s := fmt.Sprintf(verb, arg); strings.Contains(s, canary) {
				t.Errorf("%s prints the password", verb)
			}
		}
	}
}

func TestPasswordFileIsReadAtEachDial(t *testing.T) {
	path := filepath.Join(t.TempDir(), "password")
	c := mustParse(t, "amqp://u@localhost?password_file="+path)
	for _, want := range []string{"first", "second"} {
		if err := os.WriteFile(path, []byte(want+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Password(); err != nil || got != want {
			t.Errorf("got %q, %v", got, err)
		}
	}
}

// FuzzParseURL: no panic, no secret in an error, and what is accepted is valid.
func FuzzParseURL(f *testing.F) {
	f.Add("u", "p", "127.0.0.1:5672", "v", "heartbeat=10")
	f.Add("", "", "[::1],localhost", "%2F", "")
	f.Fuzz(func(t *testing.T, user, password, hosts, vhost, query string) {
		c, err := ParseURL("amqp://" + user + ":" + password + canary + "@" + hosts + "/" + vhost + "?" + query)
		if err != nil {
			if strings.Contains(err.Error(), canary) {
				t.Fatal("the error holds the secret")
			}
			return
		}
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc([]string{query, hosts, vhost, user}, func(s string) bool { return strings.Contains(s, canary) }) &&
			strings.Contains(c.Redacted(), canary) {
			t.Fatal("the redacted form holds the secret")
		}
	})
}
