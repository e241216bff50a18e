// Package rabbitmq runs workers on RabbitMQ 3.10 to 4.x.
//
//	err := rabbitmq.Run(ctx, rabbitmq.Config{URL: "amqp://worker@rabbit/?password_file=/run/secrets/rabbit"},
//		p, handle, worker.Options{Version: "fulfillment-worker 1.4.0"})
//
// Deliveries and copies are wire-exact: headers that client libraries lose or
// choke on pass through. Receiving and publishing have connections of their
// own, so that a broker that blocks publishers still takes acknowledgements.
//
// Declaring queues is not for workers: `redrive policy apply` does that.
package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	broker "github.com/redrivehq/redrive/internal/broker/rabbitmq"
	"github.com/redrivehq/redrive/internal/schema"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/policy"
	"github.com/redrivehq/redrive/quarantine/worker"
	"github.com/redrivehq/redrive/quarantine/worker/drivers"
)

// Config says how to reach a broker.
type Config struct {
	// URL is the address, as in
	//
	//	amqp[s]://USER[:PASSWORD]@HOST[:PORT][,HOST…][/VHOST][?KEY=VALUE&…]
	//
	// with the keys heartbeat, dial_timeout, rpc_timeout, max_message_bytes,
	// password_file, allow_plaintext, cacertfile, certfile, keyfile and
	// server_name. No error quotes any part of it.
	URL string
}

// Conn is a broker as the world of a worker.
type Conn struct {
	source   *broker.Source
	releaser *broker.Releaser
}

// Dial connects. Errors wrap quarantine.ErrRefused or quarantine.ErrUnreachable,
// or say what is wrong with the address. The caller closes the Conn when its
// workers have ended.
func Dial(ctx context.Context, c Config) (*Conn, error) {
	conf, err := broker.ParseURL(c.URL)
	if err != nil {
		return nil, err
	}
	source, err := broker.NewSource(ctx, conf)
	if err != nil {
		return nil, fmt.Errorf("connect to receive: %w", err)
	}
	releaser, err := broker.NewReleaser(ctx, conf)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect to publish: %w", err), source.Close())
	}
	return &Conn{source, releaser}, nil
}

// World is what worker.Run takes, with the system's clock and randomness. It
// can be changed before it is used, and used by several workers.
func (c *Conn) World() worker.Conn { return drivers.Conn(c.source, c.releaser) }

// Close ends the connections. Deliveries that are not acknowledged go back.
func (c *Conn) Close() error { return errors.Join(c.releaser.Close(), c.source.Close()) }

// Run connects, works a queue until ctx ends, and closes the connections.
func Run(ctx context.Context, c Config, p *policy.Policy, h worker.Handler, o worker.Options) error {
	conn, err := Dial(ctx, c)
	if err != nil {
		return err
	}
	return errors.Join(worker.Run(ctx, conn.World(), p, h, o), conn.Close())
}

// Schemas reads the schema files of a queue, which stand in a policy relative
// to its folder, for Options.Schema. It is nil when the policy names none.
func Schemas(folder string, q policy.Queue) (quarantine.Schema, error) {
	if len(q.Schemas) == 0 {
		return nil, nil //nolint:nilnil // no schema is no error
	}
	var files []schema.File
	for _, typ := range slices.Sorted(maps.Keys(q.Schemas)) {
		files = append(files, schema.File{Type: typ, Path: filepath.Join(folder, filepath.FromSlash(q.Schemas[typ]))})
	}
	set, err := schema.Load(files)
	if err != nil {
		return nil, fmt.Errorf("schemas of queue %q: %w", q.Name, err)
	}
	return set, nil
}
