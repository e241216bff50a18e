package rabbittest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	pollEvery = 50 * time.Millisecond
	dialLimit = 5 * time.Second
)

// startEpmd starts the name server in the foreground and waits until it
// answers. It must be there before the node, which would otherwise start one
// as a daemon that outlives the test.
func (n *Node) startEpmd() error {
	out, err := os.OpenFile(filepath.Join(n.dir, "epmd"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := n.in.command(n.dir, n.env(), epmdPath, "-address", "127.0.0.1", "-port", strconv.Itoa(n.epmdPort))
	cmd.Stdout, cmd.Stderr = out, out
	if n.epmd, err = startChild(cmd); err != nil {
		return fmt.Errorf("start epmd: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return poll(ctx, n.epmd, func() error { return askEpmd(n.epmdPort) })
}

// askEpmd sends the name server its "names" request and checks that the answer
// names the port it was asked on.
func askEpmd(port int) error {
	conn, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), dialLimit)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(dialLimit)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte{0, 1, 'n'}); err != nil {
		return err
	}
	var answer [4]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return err
	}
	if got := binary.BigEndian.Uint32(answer[:]); got != uint32(port) {
		return fmt.Errorf("name server on port %d says port %d", port, got)
	}
	return nil
}

// awaitReady polls until a client can log in and open the default vhost, and
// makes sure that the answer comes from this node and no other.
func (n *Node) awaitReady(ctx context.Context) error {
	return poll(ctx, n.server, func() error {
		conn, err := amqp.DialConfig(n.URL(), amqp.Config{Dial: amqp.DefaultDial(dialLimit)})
		if err != nil {
			return err
		}
		defer conn.Close()
		if got := conn.Properties["cluster_name"]; got != n.name {
			return fmt.Errorf("port %d belongs to another broker, %v", n.amqpPort, got)
		}
		n.version, _ = conn.Properties["version"].(string)
		return nil
	})
}

// expected refuses a broker of another version than the tests are meant for.
func expected(version string) error {
	want := os.Getenv(VersionEnv)
	if want == "" || version == want || strings.HasPrefix(version, want+".") {
		return nil
	}
	return fmt.Errorf("this is RabbitMQ %s, and %s asks for %s", version, VersionEnv, want)
}

// poll repeats try until it succeeds. It gives up when c has ended or ctx does,
// with the last error of try.
func poll(ctx context.Context, c *child, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-c.done:
			return errors.Join(fmt.Errorf("process ended: %w", orExit0(c.err)), err)
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(pollEvery):
		}
	}
}

// orExit0 gives an end without error a text.
func orExit0(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}
