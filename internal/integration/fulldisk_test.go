package integration

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/redrivehq/redrive/internal/broker/local"
)

// TestTooLittleSpace has less free space than the configuration demands: work
// is refused, a stop is not.
func TestTooLittleSpace(t *testing.T) {
	v := newEmbedded(t)
	v.publish("orders.dlq", parcels(0, 40)...)
	s := newSite(t, v.config())
	s.ok("capture")
	s.ok("generation", "plan", "--all", "--fix", "none", "--to-queue", "orders", "--bake", "1ms", "--rate", "8", "--outcome-deadline", "1s")
	s.ok("generation", "approve", "1", "--why", "no-stages")
	p := s.hold("generation", "start", "1")
	s.underway("1", 2)
	p.kill()
	v.publish("orders.dlq", parcels(40, 20)...)

	s.env = []string{"REDRIVE_MIN_FREE_MIB=1000000000"}
	s.fails(75, `MiB free.*make room and try again`, "capture")
	if n := v.ready("orders.dlq"); n != 20 {
		t.Errorf("%d messages are left at the source, want 20", n)
	}
	s.fails(75, `make room`, "envelope", "annotate", "#1", "--note", "no room for that")
	s.ok("generation", "pause", "1", "--why", "the disk is full")
	s.ok("generation", "abort", "1", "--why", "the disk is full")
	s.ok("status")
	s.env = nil
	s.ok("capture")
	if n := len(s.envelopes()); n != 60 {
		t.Errorf("%d envelopes, want 60", n)
	}
}

// fullDisk runs in a mount namespace of its own, which vanishes with it: the
// data directory $1 is on a small file system that a file fills up. The first
// capture must fail as temporary, and what it had captured must be sound.
const fullDisk = `set -eu
data=$1 copy=$2 program=$3 size=$4 filler=$5
mount -t tmpfs -o mode=700,size=$size tmpfs "$data"
cp -a "$copy/." "$data/"
rm -f "$data/reserve"
dd if=/dev/zero of="$data/filler" bs=1M count=$filler status=none
code=0
"$program" --data "$data" capture || code=$?
[ $code = 75 ] || { echo "the first capture ended with $code, want 75"; exit 1; }
rm "$data/filler"
"$program" --data "$data" ledger verify --replay --payloads || { echo "verify after the disk was full: $?"; exit 1; }
"$program" --data "$data" store check
"$program" --data "$data" capture || { echo "capture with room: $?"; exit 1; }
cp -a "$data/." "$copy/"
`

// ownMounts gives a process a mount namespace of its own, also without root.
func ownMounts() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if uid := os.Getuid(); uid != 0 {
		a.Cloneflags = syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{HostID: uid, Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	return a
}

// TestFullDisk lets a real disk run full in the middle of a capture.
func TestFullDisk(t *testing.T) {
	for _, c := range []struct {
		name        string
		body, count int // bytes, messages
	}{
		{"in the store's file", 200 << 10, 200},
		{"in blobs", 1 << 20, 40},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := newEmbedded(t)
			v.with(func(ctx context.Context, b *local.Broker) error {
				for i := range c.count {
					m := local.Message{RoutingKey: "orders.dlq", Body: bytes.Repeat([]byte{byte(i)}, c.body)}
					if _, err := b.Publish(ctx, m); err != nil {
						return err
					}
				}
				return nil
			})
			s := newSite(t, strings.Replace(v.config(), "min_free_mib: 16", "min_free_mib: 1", 1))
			copied := filepath.Join(t.TempDir(), "copy")
			must(t, os.Mkdir(copied, 0o700))
			must(t, exec.Command("cp", "-a", s.data+"/.", copied).Run())

			cmd := exec.Command("/bin/sh", "-c", fullDisk, "sh", s.data, copied, program, "160m", "140")
			cmd.Env = os.Environ()
			cmd.SysProcAttr = ownMounts()
			p := startProcess(t, cmd)
			s.spoken = append(s.spoken, p)
			p.exits(0)
			must(t, os.RemoveAll(s.data))
			must(t, os.Rename(copied, s.data))
			if n, left := len(s.envelopes()), v.ready("orders.dlq"); n < c.count || left != 0 {
				t.Errorf("%d envelopes of %d, %d left at the source", n, c.count, left)
			}
			for _, e := range s.envelopes() {
				if e.Size != uint64(c.body) {
					t.Errorf("envelope %s has %d bytes", e.ID, e.Size)
				}
			}
		})
	}
}
