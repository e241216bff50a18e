package local

import (
	"crypto/rand"
	"errors"
	"io"
	"time"
)

// Options are the choices of who opens a broker.
type Options struct {
	// Clock tells the time for expiry and for x-death. Defaults to the system's.
	// With a clock of its own, a test sees due messages expire with the next
	// call, and without any call within some milliseconds.
	Clock func() time.Time
	// Rand is read when a file is made, for the broker's id. Defaults to
	// crypto/rand.
	Rand io.Reader
	// MaxBody is the largest body in bytes. Defaults to 128 MiB.
	MaxBody int

	// stall is called before each commit, which fails with its error. Only
	// tests set it.
	stall func() error
}

// WithDefaults fills what is not set.
func (o Options) WithDefaults() Options {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	if o.MaxBody == 0 {
		o.MaxBody = 128 << 20
	}
	return o
}

// Errors of a Broker. Queue errors are those of package quarantine.
var (
	// ErrLocked is returned by Open when another process, or another Broker of
	// this one, has the file open. Stop that one first.
	ErrLocked = errors.New("broker file is in use by another process")
	// ErrFormat is returned by Open when the file is no broker file, is damaged,
	// or was written by a newer version.
	ErrFormat = errors.New("not a broker file of this version")
	// ErrFailed is returned by everything after a commit has failed. Close the
	// broker and open the file again to see what it holds.
	ErrFailed = errors.New("broker stopped after a failed commit")
	// ErrSpec is returned when a specification or message is invalid, or when a
	// queue or exchange exists with another specification.
	ErrSpec = errors.New("invalid specification")
	// ErrReceipt is returned when a receipt is unknown in its session: made up,
	// of another session, or settled before. Nothing was settled then.
	ErrReceipt = errors.New("unknown receipt")
)
