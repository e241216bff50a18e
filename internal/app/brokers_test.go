package app

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/config"
)

// TestManagementSettings holds what becomes of broker.management: the log-in,
// the files of TLS, and what is refused, without a word of the password.
func TestManagementSettings(t *testing.T) {
	const planted = "S3cr/et@pw"
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"password": 0o600, "monitor": 0o600, "open": 0o644} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(planted+" of "+name+"\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name           string
		set            config.Broker
		user, password string // that log in at the management API
		fails          string
	}{
		{"as the broker", config.Broker{URL: "amqp://ops@127.0.0.1", PasswordFile: "password", Management: "http://127.0.0.1:15672"}, "ops", planted + " of password", ""},
		{"by default", config.Broker{URL: "amqp://127.0.0.1", Management: "http://127.0.0.1"}, "guest", "guest", ""},
		{"apart", config.Broker{URL: "amqp://ops@127.0.0.1", PasswordFile: "password", Management: "http://127.0.0.1", ManagementUser: "watch", ManagementPasswordFile: "monitor"}, "watch", planted + " of monitor", ""},
		{"not at all", config.Broker{URL: "amqp://ops@127.0.0.1", PasswordFile: "password"}, "", "", ""},
		{"with TLS only there", config.Broker{URL: "amqp://127.0.0.1", CAFile: "ca.pem", Management: "https://broker.example"}, "guest", "guest", ""},
		{"files without TLS", config.Broker{URL: "amqp://127.0.0.1", CAFile: "ca.pem", Management: "http://127.0.0.1"}, "", "", "need an amqps:// URL, or https:// for management"},
		{"plaintext elsewhere", config.Broker{URL: "amqp://127.0.0.1", Management: "http://broker.example"}, "", "", "use https"},
		{"plaintext allowed", config.Broker{URL: "amqp://127.0.0.1", Management: "http://broker.example", AllowPlaintext: true}, "guest", "guest", ""},
		{"a password in the address", config.Broker{URL: "amqp://127.0.0.1", Management: "http://ops:" + url.PathEscape(planted) + "@127.0.0.1"}, "", "", "must not hold user and password"},
		{"no address", config.Broker{URL: "amqp://127.0.0.1", Management: planted}, "", "", "management"},
		{"readable by others", config.Broker{URL: "amqp://127.0.0.1", Management: "http://127.0.0.1", ManagementUser: "watch", ManagementPasswordFile: "open"}, "", "", "chmod 600"},
		{"no file", config.Broker{URL: "amqp://127.0.0.1", Management: "http://127.0.0.1", ManagementUser: "watch", ManagementPasswordFile: "absent"}, "", "", "management_password_file"},
	} {
		b := &brokers{cfg: &config.Config{Broker: c.set}, dir: dir}
		got, err := b.rabbit()
		if c.fails != "" {
			var e *api.Error
			if !errors.As(err, &e) || e.Code != api.CodeConfig || !strings.Contains(e.Message, c.fails) {
				t.Errorf("%s: %v, want a refusal that says %q", c.name, err, c.fails)
			}
			if err != nil && (strings.Contains(err.Error(), planted) || strings.Contains(err.Error(), url.PathEscape(planted))) {
				t.Errorf("%s: the error holds the password: %v", c.name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if c.user == "" {
			if got.Management != nil {
				t.Errorf("%s: %v", c.name, got.Management)
			}
			continue
		}
		password, err := got.Management.Password()
		if err != nil || got.Management.User != c.user || password != c.password || got.Management.URL != c.set.Management {
			t.Errorf("%s: %s as %q, %v", c.name, got.Management, got.Management.User, err)
		}
		if c.set.CAFile != "" {
			if _, err := got.Management.TLS("broker.example"); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, c.set.CAFile)) {
				t.Errorf("%s: the certificate file is not looked for: %v", c.name, err)
			}
		}
	}
}
