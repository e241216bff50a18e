package verify

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/redrivehq/redrive/ledger/event"
)

// Export says what WriteBundle takes from a ledger.
type Export struct {
	Scope Scope
	// Sign returns the Ed25519 signature of msg by the key that is in force.
	Sign func(msg []byte) ([]byte, error)
	// References is as in Options; without it, objects that are only named in
	// other objects stay behind.
	References func(r *event.Record, object []byte) ([]event.Digest, error)
}

// Errors of WriteBundle.
var (
	// ErrExists is returned when the target is there already. Choose another
	// one; a bundle is never changed.
	ErrExists = errors.New("the target exists, and nothing is overwritten; name another one")
	// ErrUnsigned is returned when the last checkpoint does not cover the last
	// record. Make a checkpoint first.
	ErrUnsigned = errors.New("the ledger has records after its last checkpoint")
	// ErrEmptyScope is returned when no record is in the scope.
	ErrEmptyScope = errors.New("no record is in the scope")
)

// WriteBundle writes the part of src that the scope chooses as a bundle. Src
// must hold every record. The directory appears under its name only when
// everything in it is durable; after an error there is nothing.
func WriteBundle(ctx context.Context, dir string, src Source, x Export) (err error) {
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("bundle %s: %w", dir, errors.Join(ErrExists, err))
	}
	if x.Scope.Gen != 0 && x.Scope.To != 0 || x.Scope.From > x.Scope.To {
		return fmt.Errorf("bundle %s: the scope is one generation, or a time from FROM to TO, or everything", dir)
	}
	w := &bundleWriter{src: src, x: x, done: map[event.Digest]bool{}}
	if w.dir, err = os.MkdirTemp(filepath.Dir(dir), ".bundle-*"); err != nil {
		return fmt.Errorf("bundle: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("bundle %s: %w", dir, err), os.RemoveAll(w.dir))
		}
	}()
	w.m.Scope = x.Scope
	for _, step := range []func(context.Context) error{w.survey, w.records, w.checkpoints, w.seal} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if err := syncDir(w.dir); err != nil {
		return err
	}
	if err := os.Rename(w.dir, dir); err != nil {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

var newline = []byte{'\n'}

type bundleWriter struct {
	src    Source
	x      Export
	dir    string
	m      manifest
	key    *key
	hashes *out // nil when every record is in scope
	done   map[event.Digest]bool
}

// survey finds what the manifest says about the whole ledger, and the range.
func (w *bundleWriter) survey(ctx context.Context) error {
	for line, err := range w.src.Records(ctx) {
		if err != nil {
			return err
		}
		r, err := event.ParseRecord(line)
		if err != nil {
			return err
		}
		text := ""
		switch b := r.Body.(type) {
		case *event.LedgerCreated:
			w.m.Origin, text = b.Origin, b.Key
		case *event.LedgerRekeyed:
			text = b.Key
		}
		if text != "" {
			if w.key, err = parseKey(text); err != nil {
				return err
			}
		}
		w.m.Size, w.m.Epoch = r.Seq, r.Epoch
		if w.m.First == 0 && r.TS >= w.m.From {
			w.m.First = r.Seq
		}
		if r.TS <= w.m.To {
			w.m.Last = r.Seq
		}
	}
	if w.m.To == 0 {
		w.m.First, w.m.Last = 1, w.m.Size
	}
	if w.key == nil {
		return errors.New("no record names a key")
	}
	if w.m.First == 0 || w.m.First > w.m.Last {
		return ErrEmptyScope
	}
	return nil
}

// records writes the lines in scope, the hashes, and the objects.
func (w *bundleWriter) records(ctx context.Context) error {
	recs, err := w.create(fileRecords)
	if err != nil {
		return err
	}
	defer recs.f.Close()
	if !w.m.all() {
		if w.hashes, err = w.create(fileHashes); err != nil {
			return err
		}
		defer w.hashes.f.Close()
	}
	chosen := false // a record that is not there for its key alone
	for line, err := range w.src.Records(ctx) {
		if err != nil {
			return err
		}
		r, err := event.ParseRecord(line)
		if err != nil {
			return err
		}
		if w.hashes != nil {
			sum := event.HashLine(line)
			w.hashes.write(sum[:])
		}
		if !w.m.holds(r) {
			continue
		}
		chosen = chosen || w.m.Gen == 0 || r.Subj.Gen == w.m.Gen
		w.m.Records++
		recs.write(line, newline)
		if err := w.objects(ctx, r); err != nil {
			return err
		}
	}
	if !chosen {
		return ErrEmptyScope
	}
	if w.hashes != nil {
		if err := w.finish(w.hashes); err != nil {
			return err
		}
	}
	return w.finish(recs)
}

func (w *bundleWriter) objects(ctx context.Context, r *event.Record) error {
	if !w.m.inRange(r.Seq) {
		return nil
	}
	for _, text := range references(r.Body) {
		d, err := event.ParseDigest(text)
		if err != nil {
			return err
		}
		data, err := w.object(ctx, d)
		if err != nil {
			return fmt.Errorf("record %d: object %s: %w", r.Seq, d, err)
		}
		if w.x.References == nil {
			continue
		}
		more, err := w.x.References(r, data)
		if err != nil {
			return fmt.Errorf("record %d: object %s: %w", r.Seq, d, err)
		}
		for _, d := range more {
			if _, err := w.object(ctx, d); err != nil {
				return fmt.Errorf("record %d: object %s: %w", r.Seq, d, err)
			}
		}
	}
	return nil
}

// object copies an object that was not copied before, and returns it.
func (w *bundleWriter) object(ctx context.Context, d event.Digest) ([]byte, error) {
	data, err := w.src.Object(ctx, d)
	if err != nil {
		return nil, err
	}
	if sha256.Sum256(data) != d {
		return nil, errors.New("it has other content")
	}
	if w.done[d] {
		return data, nil
	}
	if len(w.done) == 0 {
		if err := os.Mkdir(filepath.Join(w.dir, dirObjects), 0o700); err != nil {
			return nil, err
		}
	}
	w.done[d] = true
	return data, w.whole(dirObjects+"/"+d.String(), data)
}

func (w *bundleWriter) checkpoints(ctx context.Context) error {
	f, err := w.create(fileCheckpoints)
	if err != nil {
		return err
	}
	defer f.f.Close()
	last := uint64(0)
	for msg, err := range w.src.Checkpoints(ctx) {
		if err != nil {
			return err
		}
		c, err := parseCheckpoint(msg)
		if err != nil {
			return err
		}
		last = c.size
		f.write(msg, newline)
	}
	if last != w.m.Size {
		return ErrUnsigned
	}
	return w.finish(f)
}

// seal writes the key and the manifest. The signature is checked first, so that
// a wrong key cannot make a bundle that nobody can open.
func (w *bundleWriter) seal(context.Context) error {
	if err := w.whole(fileKey, []byte(w.key.text+"\n")); err != nil {
		return err
	}
	text := bytes.Clone(w.m.text())
	sig, err := w.x.Sign(text)
	if err != nil {
		return fmt.Errorf("sign the manifest: %w", err)
	}
	sealed := w.key.seal(text, sig)
	n, err := parseNote(sealed)
	if err == nil {
		err = w.key.check(n)
	}
	if err == nil {
		_, err = parseManifest(n.text)
	}
	if err != nil {
		return fmt.Errorf("sign the manifest: %w", err)
	}
	if len(w.done) > 0 {
		if err := syncDir(filepath.Join(w.dir, dirObjects)); err != nil {
			return err
		}
	}
	return w.whole(fileManifest, sealed)
}

// out is a file being written and hashed. Errors of writing wait for finish.
type out struct {
	name string
	f    *os.File
	buf  *bufio.Writer
	sum  hash.Hash
	err  error
}

func (o *out) write(parts ...[]byte) {
	for _, p := range parts {
		o.sum.Write(p)
		if o.err == nil {
			_, o.err = o.buf.Write(p)
		}
	}
}

func (w *bundleWriter) create(name string) (*out, error) {
	f, err := os.OpenFile(filepath.Join(w.dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return &out{name: name, f: f, buf: bufio.NewWriterSize(f, 64<<10), sum: sha256.New()}, nil
}

// finish makes a file durable and lists it in the manifest.
func (w *bundleWriter) finish(o *out) error {
	if err := errors.Join(o.err, o.buf.Flush(), o.f.Sync()); err != nil {
		return errors.Join(err, o.f.Close())
	}
	info, err := o.f.Stat()
	if err = errors.Join(err, o.f.Close()); err != nil {
		return err
	}
	if o.name != fileManifest {
		w.m.files = append(w.m.files, file{name: o.name, size: uint64(info.Size()), sum: event.Digest(o.sum.Sum(nil))})
	}
	return nil
}

func (w *bundleWriter) whole(name string, data []byte) error {
	o, err := w.create(name)
	if err != nil {
		return err
	}
	o.write(data)
	return w.finish(o)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
