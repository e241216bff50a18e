package rabbitmq

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrivehq/redrive/quarantine"
)

// link is one connection that is logged in. It never comes back once it is
// lost: the library's own recovery would put old delivery tags onto a new
// session, where they name other messages.
type link struct {
	conn *amqp.Connection
	tap  *tap
	rpc  time.Duration
	id   identity
}

// identity is what a broker says about itself.
type identity struct {
	product, version, cluster string
}

// major is the first number of RabbitMQ's version, 0 of another broker.
func (i identity) major() int {
	major, _, _ := strings.Cut(i.version, ".")
	n, err := strconv.Atoi(major)
	if err != nil || i.product != "RabbitMQ" {
		return 0
	}
	return n
}

// plain is the mechanism PLAIN. It also asks the broker to say why it refuses
// a log-in: the library writes the capabilities itself, and asks for the
// response only after that.
type plain struct {
	user, password string
	properties     amqp.Table
}

// Mechanism implements amqp.Authentication.
func (*plain) Mechanism() string { return "PLAIN" }

// Response implements amqp.Authentication.
func (p *plain) Response() string {
	if caps, ok := p.properties["capabilities"].(amqp.Table); ok {
		caps["authentication_failure_close"] = true
	}
	return "\x00" + p.user + "\x00" + p.password
}

// dial opens a connection to the first host that takes it. It gives up early
// when one refuses for good. want, unless zero, is the broker that it has to be.
func dial(ctx context.Context, c Config, name string, s sink, want identity) (*link, error) {
	password, err := c.Password()
	if err != nil {
		return nil, fmt.Errorf("%w: password: %w", quarantine.ErrRefused, err)
	}
	var failed []error
	for _, host := range c.Hosts {
		l, err := dialHost(ctx, c, host, name, password, s)
		if err == nil && want.cluster != "" && l.id.cluster != want.cluster {
			err = fmt.Errorf("%w: this is cluster %q, not %q", quarantine.ErrRefused, cut(l.id.cluster), cut(want.cluster))
			l.close()
		}
		if err == nil {
			return l, nil
		}
		failed = append(failed, fmt.Errorf("%s: %w", host, classify(err, opening)))
		if ctx.Err() != nil || errors.Is(err, quarantine.ErrRefused) {
			break
		}
	}
	return nil, errors.Join(failed...)
}

func dialHost(ctx context.Context, c Config, host, name, password string, s sink) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, c.DialTimeout)
	defer cancel()
	conn, err := connect(ctx, c, host)
	if err != nil {
		return nil, classify(err, opening)
	}
	t := newTap(conn, s)
	// The library takes no context: it ends when its connection does.
	stop := context.AfterFunc(ctx, t.kill)
	props := amqp.Table{"product": "redrive", "connection_name": cut(name)}
	ac, err := amqp.Open(t, amqp.Config{
		SASL:       []amqp.Authentication{&plain{c.User, password, props}},
		Vhost:      c.VHost,
		FrameSize:  amqp.FrameSizeUnlimited, // what the broker offers
		Heartbeat:  c.Heartbeat,
		Properties: props,
		Locale:     "en_US",
	})
	if !stop() {
		t.kill()
		return nil, fmt.Errorf("%w: no answer to the log-in: %w", quarantine.ErrUnreachable, context.Cause(ctx))
	}
	if err != nil {
		t.kill()
		return nil, classify(err, opening)
	}
	return &link{conn: ac, tap: t, rpc: c.RPCTimeout, id: identify(ac.Properties)}, nil
}

// connect opens the network connection, and TLS on it.
func connect(ctx context.Context, c Config, host string) (net.Conn, error) {
	conn, err := c.Dial(ctx, "tcp", host)
	if err != nil || c.TLS == nil {
		return conn, err
	}
	name, _, _ := net.SplitHostPort(host)
	conf, err := c.TLS.Config(name)
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("%w: %w", quarantine.ErrRefused, err)
	}
	secure := tls.Client(conn, conf)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return secure, nil
}

func identify(p amqp.Table) identity {
	text := func(key string) string { s, _ := p[key].(string); return s }
	return identity{text("product"), text("version"), text("cluster_name")}
}

// call runs one or more requests under the time limit and ctx. The library
// would wait for ever for an answer; when the time is over the connection is
// given up, because nobody knows what it will still do. While a message comes
// in, the answer waits behind it: the time runs from its last part.
func (l *link) call(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	defer close(done)
	go func() {
		t := time.NewTimer(l.rpc)
		defer t.Stop()
		for seen := l.tap.parts.Load(); ; {
			select {
			case <-done:
				return
			case <-t.C:
			}
			now := l.tap.parts.Load()
			if now == seen {
				cancel(context.DeadlineExceeded)
				return
			}
			seen = now
			t.Reset(l.rpc)
		}
	}()
	stop := context.AfterFunc(ctx, l.tap.kill)
	err := f()
	if !stop() && err != nil {
		return fmt.Errorf("%w: the broker did not answer: %w", quarantine.ErrUnreachable, context.Cause(ctx))
	}
	return err
}

// goodbye bounds how long a connection that nobody needs any more is closed
// politely.
const goodbye = 3 * time.Second

// close ends the connection, politely if the broker still listens.
func (l *link) close() {
	ctx, cancel := context.WithTimeout(context.Background(), goodbye)
	defer cancel()
	_ = l.call(ctx, l.conn.Close)
	l.tap.kill()
}
