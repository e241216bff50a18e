package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/broker/local"
	"github.com/redrivehq/redrive/internal/broker/rabbitmq"
	"github.com/redrivehq/redrive/internal/broker/rabbitmq/management"
	"github.com/redrivehq/redrive/internal/config"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

// brokers opens both sides of the configured broker at their first use. It
// implements control.Brokers.
type brokers struct {
	cfg *config.Config
	dir string // relative files of the configuration are found here

	mu       sync.Mutex
	embedded *local.Broker
	owned    bool // embedded was opened here
	source   quarantine.Source
	releaser redrive.Releaser
}

// localScheme names the embedded broker in a URL.
const localScheme = "local:"

// Source implements control.Brokers.
func (b *brokers) Source(ctx context.Context) (quarantine.Source, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.source != nil {
		return b.source, nil
	}
	if b.isLocal() {
		br, err := b.local()
		if err != nil {
			return nil, err
		}
		b.source = local.NewSource(br)
		return b.source, nil
	}
	c, err := b.rabbit()
	if err != nil {
		return nil, err
	}
	s, err := rabbitmq.NewSource(ctx, c)
	if err != nil {
		return nil, err
	}
	b.source = s
	return s, nil
}

// Releaser implements control.Brokers.
func (b *brokers) Releaser(ctx context.Context) (redrive.Releaser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.releaser != nil {
		return b.releaser, nil
	}
	if b.isLocal() {
		br, err := b.local()
		if err != nil {
			return nil, err
		}
		b.releaser = local.NewReleaser(br)
		return b.releaser, nil
	}
	c, err := b.rabbit()
	if err != nil {
		return nil, err
	}
	r, err := rabbitmq.NewReleaser(ctx, c)
	if err != nil {
		return nil, err
	}
	b.releaser = r
	return r, nil
}

// Fresh implements control.Brokers. The embedded broker is one, however often
// it is asked for: its file can be open once.
func (b *brokers) Fresh(ctx context.Context) (quarantine.Source, redrive.Releaser, func() error, error) {
	if b.isLocal() {
		b.mu.Lock()
		defer b.mu.Unlock()
		br, err := b.local()
		if err != nil {
			return nil, nil, nil, err
		}
		s, r := local.NewSource(br), local.NewReleaser(br)
		return s, r, func() error { return errors.Join(s.Close(), r.Close()) }, nil
	}
	c, err := b.rabbit()
	if err != nil {
		return nil, nil, nil, err
	}
	s, err := rabbitmq.NewSource(ctx, c)
	if err != nil {
		return nil, nil, nil, err
	}
	r, err := rabbitmq.NewReleaser(ctx, c)
	if err != nil {
		return nil, nil, nil, errors.Join(err, s.Close())
	}
	return s, r, func() error { return errors.Join(s.Close(), r.Close()) }, nil
}

// Forget implements control.Brokers. The embedded broker stays open.
func (b *brokers) Forget() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	if b.source != nil {
		errs = append(errs, b.source.Close())
	}
	if b.releaser != nil {
		errs = append(errs, b.releaser.Close())
	}
	b.source, b.releaser = nil, nil
	return errors.Join(errs...)
}

func (b *brokers) isLocal() bool { return strings.HasPrefix(b.cfg.Broker.URL, localScheme) }

func (b *brokers) local() (*local.Broker, error) {
	if b.embedded != nil {
		return b.embedded, nil
	}
	path := strings.TrimPrefix(b.cfg.Broker.URL, localScheme)
	if !filepath.IsAbs(path) {
		path = filepath.Join(b.dir, path)
	}
	br, err := local.Open(path, local.Options{})
	if err != nil {
		return nil, fmt.Errorf("embedded broker: %w", err)
	}
	b.embedded, b.owned = br, true
	return br, nil
}

// rabbit turns the configuration into that of the driver. The password is read
// anew at each dial, so that a changed file is taken.
func (b *brokers) rabbit() (rabbitmq.Config, error) {
	set := b.cfg.Broker
	if set.URL == "" {
		return rabbitmq.Config{}, &api.Error{Code: api.CodeConfig, Message: "no broker is configured: set broker.url in the configuration, or REDRIVE_BROKER_URL"}
	}
	c, err := rabbitmq.ParseAddress(set.URL)
	if err != nil {
		return c, &api.Error{Code: api.CodeConfig, Message: "broker.url: " + err.Error()}
	}
	if set.User != "" {
		c.User = set.User
	}
	if set.PasswordFile != "" {
		path := b.file(set.PasswordFile)
		if _, err := readSecret(path); err != nil {
			// Said here, it is not taken for an answer of the broker.
			return c, &api.Error{Code: api.CodeConfig, Message: "broker.password_file: " + err.Error()}
		}
		c.Password = func() (string, error) { return readSecret(path) }
	}
	files := rabbitmq.TLS{CAFile: b.file(set.CAFile), CertFile: b.file(set.CertFile), KeyFile: b.file(set.KeyFile)}
	if files != (rabbitmq.TLS{}) {
		if c.TLS == nil && !strings.HasPrefix(set.Management, "https:") {
			return c, &api.Error{Code: api.CodeConfig, Message: "broker: ca_file, cert_file and key_file need an amqps:// URL, or https:// for management"}
		}
		if c.TLS != nil {
			c.TLS.CAFile, c.TLS.CertFile, c.TLS.KeyFile = files.CAFile, files.CertFile, files.KeyFile
		}
	}
	if c.Password == nil && (c.User == "" || c.User == "guest") {
		// What every RabbitMQ has until it is changed; it works from the same
		// machine only.
		c.Password = func() (string, error) { return "guest", nil }
	}
	c.AllowPlaintext = c.AllowPlaintext || set.AllowPlaintext
	if c.Management, err = b.management(c, files); err != nil {
		return c, &api.Error{Code: api.CodeConfig, Message: "broker.management_password_file: " + err.Error()}
	}
	// Not before: what the address lacks is in the other settings.
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		return c, &api.Error{Code: api.CodeConfig, Message: "broker: " + err.Error()}
	}
	return c, nil
}

// management is how to reach the management API, nil when none is configured.
// It logs in as the broker's user, unless another one is named.
func (b *brokers) management(c rabbitmq.Config, files rabbitmq.TLS) (*management.Config, error) {
	set := b.cfg.Broker
	if set.Management == "" {
		return nil, nil
	}
	m := &management.Config{URL: set.Management, User: c.WithDefaults().User, Password: c.Password, AllowPlaintext: c.AllowPlaintext}
	if c.TLS != nil {
		files = *c.TLS // the address may name files as well
		files.ServerName = ""
	}
	m.TLS = files.Config
	if set.ManagementUser != "" {
		path := b.file(set.ManagementPasswordFile)
		if _, err := readSecret(path); err != nil {
			return nil, err
		}
		m.User, m.Password = set.ManagementUser, func() (string, error) { return readSecret(path) }
	}
	return m, nil
}

// file finds a file that the configuration names, beside the data when it is
// relative.
func (b *brokers) file(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(b.dir, path)
}

// readSecret reads a file of one line that only its owner can read.
func readSecret(path string) (string, error) {
	st, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("read the secret: %w", err)
	}
	if st.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s has mode %#o; run: chmod 600 %s", path, st.Mode().Perm(), path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the secret: %w", err)
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}

func (b *brokers) close() error {
	err := b.Forget()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.owned {
		err = errors.Join(err, b.embedded.Close())
	}
	return err
}
