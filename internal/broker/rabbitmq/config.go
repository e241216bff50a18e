package rabbitmq

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redrivehq/redrive/internal/broker/rabbitmq/management"
)

// Bounds of the time settings.
const (
	minHeartbeat = 5 * time.Second // below, a busy broker looks dead
	maxHeartbeat = 5 * time.Minute
	minTimeout   = 100 * time.Millisecond
	maxTimeout   = 5 * time.Minute
)

// Config says how to reach a broker. It is copied when it is used; nothing in
// it is ever modified. The zero Config is not valid: Hosts and Password are
// needed.
type Config struct {
	// Hosts are tried in order, each as host:port.
	Hosts []string
	// VHost is the namespace, verbatim. Defaults to "/".
	VHost string
	// User logs in with the mechanism PLAIN. Defaults to "guest".
	User string
	// Password is read anew at each dial, so that a rotated one is used. Its
	// errors must not hold the secret.
	Password func() (string, error)

	// TLS turns on TLS. Defaults to nil, plaintext.
	TLS *TLS
	// AllowPlaintext permits plaintext to hosts that are not this machine.
	// Defaults to false.
	AllowPlaintext bool

	// Heartbeat is the interval of keep-alive frames, 5 s to 5 min. A peer
	// that is silent for one and a half of it is gone. Defaults to 10 s.
	Heartbeat time.Duration
	// DialTimeout bounds connecting to one host, log-in included. Defaults to 10 s.
	DialTimeout time.Duration
	// RPCTimeout bounds each request to the broker; when it passes, the
	// connection is given up. Defaults to 15 s.
	RPCTimeout time.Duration
	// MaxMessage is the largest body in bytes that the broker takes
	// (max_message_size). A broker does not say; defaults to what its version
	// has by default.
	MaxMessage int

	// Management is the management API of the same broker, which tells what
	// AMQP does not. Defaults to nil: it is not asked, and what only it knows
	// is unknown.
	Management *management.Config

	// Dial opens the network connection. Defaults to a net.Dialer.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// TLS names the files of a TLS connection. They are read anew at each dial.
// Versions below 1.2 are never spoken, and certificates are always verified.
type TLS struct {
	// CAFile holds the certificates that may sign the broker's, in PEM. It
	// replaces the system's. Defaults to "", the system's.
	CAFile string
	// CertFile and KeyFile are the client's certificate, in PEM: both or
	// neither. Default to "", none.
	CertFile, KeyFile string
	// ServerName is what the broker's certificate must name. Defaults to the
	// host that is dialled.
	ServerName string
}

// WithDefaults returns c with every unset field at its default.
func (c Config) WithDefaults() Config {
	if c.VHost == "" {
		c.VHost = "/"
	}
	if c.User == "" {
		c.User = "guest"
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&c.Heartbeat, 10 * time.Second}, {&c.DialTimeout, 10 * time.Second}, {&c.RPCTimeout, 15 * time.Second}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if c.Dial == nil {
		c.Dial = (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext
	}
	return c
}

// Validate reports the first thing that is wrong with c, after WithDefaults.
// No error names a secret.
func (c Config) Validate() error {
	if len(c.Hosts) == 0 {
		return errors.New("no broker host is given")
	}
	if c.Password == nil {
		return errors.New("no password is given: put one into the address, or name a file with password_file")
	}
	for _, s := range []struct{ name, value string }{{"vhost", c.VHost}, {"user", c.User}} {
		if len(s.value) > 255 {
			return fmt.Errorf("the %s has %d bytes, at most 255 are possible", s.name, len(s.value))
		}
	}
	for i, h := range c.Hosts {
		host, port, err := net.SplitHostPort(h)
		if err != nil || host == "" {
			return fmt.Errorf("broker host %d is not HOST:PORT", i+1)
		}
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return fmt.Errorf("broker host %d: the port is not a number from 1 to 65535", i+1)
		}
		if c.TLS == nil && !c.AllowPlaintext && !loopback(host) {
			return fmt.Errorf("broker host %d is another machine: use amqps, or allow plaintext by allow_plaintext=true", i+1)
		}
	}
	if c.TLS != nil && (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		return errors.New("a client certificate needs both its certificate file and its key file")
	}
	if c.Management != nil {
		if err := c.Management.Validate(); err != nil {
			return fmt.Errorf("management: %w", err)
		}
	}
	return c.validateTimes()
}

func (c Config) validateTimes() error {
	if c.Heartbeat < minHeartbeat || c.Heartbeat > maxHeartbeat {
		return fmt.Errorf("heartbeat %v is not between %v and %v", c.Heartbeat, minHeartbeat, maxHeartbeat)
	}
	if c.DialTimeout < minTimeout || c.DialTimeout > maxTimeout {
		return fmt.Errorf("dial time-out %v is not between %v and %v", c.DialTimeout, minTimeout, maxTimeout)
	}
	if c.RPCTimeout < minTimeout || c.RPCTimeout > maxTimeout {
		return fmt.Errorf("request time-out %v is not between %v and %v", c.RPCTimeout, minTimeout, maxTimeout)
	}
	if c.MaxMessage < 0 {
		return fmt.Errorf("largest message %d is negative", c.MaxMessage)
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Redacted describes the broker for people: scheme, user, hosts and vhost,
// never the password.
func (c Config) Redacted() string {
	c = c.WithDefaults()
	scheme := "amqp"
	if c.TLS != nil {
		scheme = "amqps"
	}
	return scheme + "://" + escape(c.User) + "@" + strings.Join(c.Hosts, ",") + "/" + escape(c.VHost)
}

// String is Redacted, so that printing a Config is safe.
func (c Config) String() string { return c.Redacted() }

// Config reads the files and makes a configuration for one dial to host.
func (t *TLS) Config(host string) (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if conf.ServerName == "" {
		conf.ServerName = host
	}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("certificate authority: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("certificate authority: no certificate in %s", t.CAFile)
		}
	}
	if t.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("client certificate: %w", err)
		}
		conf.Certificates = []tls.Certificate{cert}
	}
	return conf, nil
}
