package local

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"go.uber.org/goleak"

	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/redrive"
)

func TestUnsettledSurvivesReopening(t *testing.T) {
	b, ctx := openTemp(t, Options{})
	declare(t, b, QueueSpec{Name: "dead"}, QueueSpec{Name: "q", DeliveryLimit: 2, DeadLetter: ToQueue("dead")})
	publish(t, b, "q", "0", "1", "2", "3")
	for life := range 3 {
		c, ds := consume(t, b, "q", 2)
		for i, d := range ds {
			if d.DeliveryCount != life || d.Redelivered != (life > 0) || string(d.Body) != string(rune('0'+i)) {
				t.Errorf("life %d: %q, count %d, redelivered %v", life, d.Body, d.DeliveryCount, d.Redelivered)
			}
		}
		path, cluster := b.db.Path(), b.Cluster()
		must(t, b.Close())
		if !errors.Is(c.Err(), quarantine.ErrUnreachable) {
			t.Errorf("the session says %v", c.Err())
		}
		if err := c.Close(ctx); err != nil {
			t.Errorf("close of a lost session: %v", err)
		}
		b = open(t, path, Options{})
		if b.Cluster() != cluster || len(cluster) != 32 {
			t.Errorf("cluster %q became %q", cluster, b.Cluster())
		}
	}
	// The third life has spent the limit of what it was handed.
	wantBodies(t, b, "q", "2", "3")
	for _, d := range drain(t, b, "dead") {
		wantDeaths(t, d, "q/delivery_limit/1")
	}
}

func TestOpenMakesACompletePrivateFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "broker")
	b := open(t, path, Options{})
	info, err := os.Stat(path)
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	files, err := os.ReadDir(dir)
	must(t, err)
	if len(files) != 1 {
		t.Errorf("%d files are left", len(files))
	}
	if _, err := Open(path, Options{}); !errors.Is(err, ErrLocked) {
		t.Errorf("a second one opens: %v", err)
	}
	must(t, b.Close())
	must(t, b.Close())
	if _, err := b.Publish(within(t), Message{RoutingKey: "q"}); !errors.Is(err, quarantine.ErrClosed) {
		t.Errorf("a closed broker publishes: %v", err)
	}
	if _, err := Open(filepath.Join(dir, "absent", "broker"), Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
}

func TestOpenRefusesForeignAndFutureFiles(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	must(t, os.WriteFile(text, []byte(strings.Repeat("no broker ", 10_000)), 0o600))
	other := filepath.Join(dir, "other")
	db, err := bbolt.Open(other, 0o600, nil)
	must(t, err)
	must(t, db.Close())
	for _, tamper := range []struct {
		name          string
		bucket        []byte
		key, value    []byte
		wantFormatErr bool
	}{
		{"future", bucketMeta, keyFormat, []byte{0, 0, 0, 0, 0, 0, 0, 2}, true},
		{"queue", bucketQueues, []byte("q"), []byte("{"), true},
		{"binding", bucketBindings, []byte(`{"exchange":"x","queue":"q","key":""}`), nil, true},
		{"untouched", bucketMeta, []byte("note"), []byte("harmless"), false},
	} {
		path := filepath.Join(dir, tamper.name)
		must(t, open(t, path, Options{}).Close())
		db, err := bbolt.Open(path, 0o600, nil)
		must(t, err)
		must(t, db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(tamper.bucket).Put(tamper.key, tamper.value) }))
		must(t, db.Close())
		b, err := Open(path, Options{})
		if errors.Is(err, ErrFormat) != tamper.wantFormatErr {
			t.Errorf("%s: %v", tamper.name, err)
		}
		if b != nil {
			must(t, b.Close())
		}
	}
	for _, path := range []string{text, other} {
		if _, err := Open(path, Options{}); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestRecords(t *testing.T) {
	r := record{arrived: 1, expires: 2, exchange: "x", routingKey: strings.Repeat("k", 255), properties: []byte{0, 0}, body: []byte("b")}
	raw := r.encode()
	for n := range raw[:len(raw)-1] {
		if got, err := decodeRecord(raw[:n]); err == nil || got != nil {
			t.Fatalf("%d of %d bytes decode", n, len(raw))
		}
	}
	got, err := decodeRecord(raw)
	must(t, err)
	if !bytes.Equal(got.encode(), raw) {
		t.Error("not the inverse")
	}
	raw[0] = 2
	if _, err := decodeRecord(raw); !errors.Is(err, ErrFormat) {
		t.Errorf("a future record: %v", err)
	}
	if _, err := recordExpires(raw); !errors.Is(err, ErrFormat) {
		t.Errorf("a future record: %v", err)
	}
}

func TestAFailedCommitStopsTheBroker(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	cause := errors.New("no space on device")
	var broken bool
	path := filepath.Join(t.TempDir(), "broker")
	b, err := Open(path, Options{stall: func() error {
		if broken {
			return cause
		}
		return nil
	}})
	must(t, err)
	ctx := within(t)
	declare(t, b, QueueSpec{Name: "q"})
	publish(t, b, "q", "kept")
	c, ds := consume(t, b, "q", 1)
	channel, err := NewReleaser(b).Open(ctx, redrive.ChannelOptions{Window: 4, ConfirmDeadline: time.Minute})
	must(t, err)
	must(t, b.do(ctx, func(*turn) error { broken = true; return nil }))

	must(t, channel.Publish(ctx, redrive.Message{Token: 7, Dest: redrive.Destination{RoutingKey: "q"}, Properties: []byte{0, 0}}))
	if r := <-channel.Results(); r.Token != 7 || r.Resolution != event.Ambiguous || r.Reason != "connection_lost" {
		t.Errorf("%+v", r)
	}
	_, publishErr := b.Publish(ctx, Message{RoutingKey: "q"})
	for name, err := range map[string]error{
		"publish": publishErr, "ack": c.Ack(ctx, ds[0].Receipt), "session": c.Err(), "declare": b.Declare(ctx, QueueSpec{Name: "r"}),
	} {
		if !errors.Is(err, ErrFailed) || !errors.Is(err, cause) || !errors.Is(err, quarantine.ErrUnreachable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	err = channel.Publish(ctx, redrive.Message{Dest: redrive.Destination{RoutingKey: "q"}, Properties: []byte{0, 0}})
	var refused *redrive.RefusedError
	if !errors.As(err, &refused) || refused.Reason != "not_connected" {
		t.Errorf("publish on a channel: %v", err)
	}
	must(t, channel.Close(ctx))
	must(t, b.Close())

	b, err = Open(path, Options{})
	must(t, err)
	wantBodies(t, b, "q", "kept")
	must(t, b.Close())
}

func TestStorageThatPanicsOrForgetsStopsTheBroker(t *testing.T) {
	var panics bool
	b, ctx := openTemp(t, Options{stall: func() error {
		if panics {
			panic("page 7 is not a leaf")
		}
		return nil
	}})
	declare(t, b, QueueSpec{Name: "q"})
	must(t, b.do(ctx, func(*turn) error { panics = true; return nil }))
	if _, err := b.Publish(ctx, Message{RoutingKey: "q"}); !errors.Is(err, ErrFailed) || !strings.Contains(err.Error(), "page 7") {
		t.Errorf("publish: %v", err)
	}
	must(t, b.Close())

	b, ctx = openTemp(t, Options{})
	declare(t, b, QueueSpec{Name: "q"})
	publish(t, b, "q", "m")
	must(t, b.do(ctx, func(t *turn) error {
		q := b.queues["q"]
		t.dirty = true
		return t.messages(q).Delete(q.head().key())
	}))
	if _, err := b.Consume(ctx, "q", 1); !errors.Is(err, ErrFailed) || !errors.Is(err, errVanished) {
		t.Errorf("consume: %v", err)
	}
}

func TestAnEndedContextLeavesNoConsumerBehind(t *testing.T) {
	b, _ := openTemp(t, Options{})
	declare(t, b, QueueSpec{Name: "q"})
	publish(t, b, "q", "m")
	// The loop is busy until the context has ended, so that Consume gives up
	// while its request waits.
	ctx, cancel := context.WithCancel(context.Background())
	busy, release := make(chan struct{}), make(chan struct{})
	idle := make(chan error, 1)
	go func() { idle <- b.do(context.Background(), func(*turn) error { close(busy); <-release; return nil }) }()
	<-busy
	failed := make(chan error, 1)
	go func() { _, err := b.Consume(ctx, "q", 1); failed <- err }()
	for b.inbox.length() == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("consume: %v", err)
	}
	close(release)
	must(t, <-idle)
	s, err := b.Stats(within(t), "q")
	must(t, err)
	if s.Consumers != 0 || s.Ready != 1 {
		t.Errorf("%+v", s)
	}
}

func (in *inbox) length() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.list)
}

// lockEnv turns the test binary into a second process that tries the file
// named "broker" in its folder.
const lockEnv = "LOCAL_BROKER_LOCK"

func TestASecondProcessIsToldSo(t *testing.T) {
	b, _ := openTemp(t, Options{})
	self, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(within(t), self)
	cmd.Env = append(os.Environ(), lockEnv+"=yes")
	cmd.Dir = filepath.Dir(b.db.Path())
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), ErrLocked.Error()) {
		t.Errorf("%v: %s", err, out)
	}
}
