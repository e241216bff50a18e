package rabbitmq

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// ParseURL reads a broker address:
//
//	amqp[s]://USER[:PASSWORD]@HOST[:PORT][,HOST[:PORT]…][/VHOST][?KEY=VALUE&…]
//
// The port defaults to 5672, with TLS to 5671. The vhost is one path segment,
// so a slash in it is written %2F; an absent one, "/" and "//" mean the vhost
// "/". A percent sign and any of ":/?#@" in user and password must be
// percent-encoded; a plus sign stands for itself.
//
// Keys are heartbeat (seconds), dial_timeout and rpc_timeout (durations, as in
// "5s"), max_message_bytes, password_file, allow_plaintext (true or false), and
// with amqps cacertfile, certfile, keyfile and server_name. A key that is not
// among them is refused, as is one given twice.
//
// No error quotes any part of the address: a password with an unescaped
// character can be anywhere in it.
func ParseURL(s string) (Config, error) {
	c, err := ParseAddress(s)
	if err != nil {
		return Config{}, err
	}
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		return Config{}, fmt.Errorf("broker address: %w", err)
	}
	return c, nil
}

// ParseAddress reads a broker address whose user, password or files are still
// to come from elsewhere: only its form is checked. The caller completes it
// and then applies WithDefaults and Validate.
func ParseAddress(s string) (Config, error) {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok {
		return Config{}, errors.New("broker address: it does not begin with amqp:// or amqps://")
	}
	var c Config
	port := "5672"
	switch strings.ToLower(scheme) {
	case "amqp":
	case "amqps":
		c.TLS = &TLS{}
		port = "5671"
	default:
		return Config{}, errors.New("broker address: it does not begin with amqp:// or amqps://")
	}
	if strings.ContainsRune(rest, '#') {
		return Config{}, errors.New("broker address: it has a fragment; write # as %23")
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, path, hasPath := strings.Cut(rest, "/")
	for _, step := range []func() error{
		func() error { return c.parseAuthority(authority, port) },
		func() error { return c.parseVHost(path, hasPath) },
		func() error { return c.parseQuery(query) },
	} {
		if err := step(); err != nil {
			return Config{}, fmt.Errorf("broker address: %w", err)
		}
	}
	return c, nil
}

func (c *Config) parseAuthority(authority, port string) error {
	hosts := authority
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		user, password, hasPassword := strings.Cut(authority[:at], ":")
		hosts = authority[at+1:]
		var err1, err2 error
		c.User, err1 = url.PathUnescape(user)
		password, err2 = url.PathUnescape(password)
		if err1 != nil || err2 != nil || strings.Contains(authority[:at], "@") {
			return errors.New("user or password is not percent-encoded; write a percent sign as %25 and @ as %40")
		}
		if hasPassword {
			c.Password = func() (string, error) { return password, nil }
		}
	}
	for i, h := range strings.Split(hosts, ",") {
		if _, _, err := net.SplitHostPort(h); err != nil {
			h = net.JoinHostPort(strings.Trim(h, "[]"), port)
		}
		host, _, err := net.SplitHostPort(h)
		if err != nil || host == "" || strings.ContainsAny(host, "%[] ") {
			return fmt.Errorf("host %d is not HOST or HOST:PORT", i+1)
		}
		c.Hosts = append(c.Hosts, h)
	}
	return nil
}

func (c *Config) parseVHost(path string, hasPath bool) error {
	if !hasPath || path == "" || path == "/" {
		c.VHost = "/"
		return nil
	}
	vhost, err := url.PathUnescape(path)
	if err != nil || strings.Contains(path, "/") {
		return errors.New("the vhost is not one percent-encoded segment; write a slash as %2F")
	}
	c.VHost = vhost
	return nil
}

func (c *Config) parseQuery(query string) error {
	if query == "" {
		return nil
	}
	seen := map[string]bool{}
	for i, pair := range strings.Split(query, "&") {
		key, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(value)
		if !ok || err != nil || seen[key] {
			return fmt.Errorf("parameter %d is not KEY=VALUE, or given twice", i+1)
		}
		seen[key] = true
		known, err := c.setParameter(key, value)
		if !known {
			return fmt.Errorf("parameter %d is unknown; known are heartbeat, dial_timeout, rpc_timeout, max_message_bytes, "+
				"password_file, allow_plaintext, and with amqps cacertfile, certfile, keyfile, server_name", i+1)
		}
		if err != nil {
			return fmt.Errorf("parameter %s: %w", key, err)
		}
	}
	return nil
}

// setParameter sets one parameter. Its errors do not quote the value.
func (c *Config) setParameter(key, value string) (known bool, err error) {
	switch key {
	case "heartbeat":
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > 1<<16 {
			return true, errors.New("want a number of seconds from 5 to 300")
		}
		c.Heartbeat = time.Duration(n) * time.Second
	case "dial_timeout":
		return true, setDuration(&c.DialTimeout, value)
	case "rpc_timeout":
		return true, setDuration(&c.RPCTimeout, value)
	case "max_message_bytes":
		if c.MaxMessage, err = strconv.Atoi(value); err != nil || c.MaxMessage < 1 {
			return true, errors.New("want a number of bytes")
		}
	case "password_file":
		c.Password = func() (string, error) { return readSecret(value) }
	case "allow_plaintext":
		if value != "true" && value != "false" {
			return true, errors.New("want true or false")
		}
		c.AllowPlaintext = value == "true"
	default:
		return c.setTLSParameter(key, value), nil
	}
	return true, nil
}

func (c *Config) setTLSParameter(key, value string) (known bool) {
	if c.TLS == nil {
		return false
	}
	switch key {
	case "cacertfile":
		c.TLS.CAFile = value
	case "certfile":
		c.TLS.CertFile = value
	case "keyfile":
		c.TLS.KeyFile = value
	case "server_name":
		c.TLS.ServerName = value
	default:
		return false
	}
	return true
}

func setDuration(d *time.Duration, value string) error {
	v, err := time.ParseDuration(value)
	if err != nil || v <= 0 {
		return errors.New(`want a duration, as in "5s"`)
	}
	*d = v
	return nil
}

// readSecret reads a file without the line break at its end.
func readSecret(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("password file: %w", err)
	}
	return strings.TrimRight(string(b), "\r\n"), nil
}

func escape(s string) string { return strings.ReplaceAll(url.PathEscape(s), "+", "%2B") }
