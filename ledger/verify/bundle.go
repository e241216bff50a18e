package verify

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"strings"

	"github.com/redrivehq/redrive/ledger/event"
)

// Bundle is a Source that lies in a directory.
type Bundle struct {
	root *os.Root
	m    *manifest
	key  *key
}

// CheckBundle opens a bundle and verifies it. What is wrong with the bundle is
// in the report, like everything else that is wrong.
func CheckBundle(ctx context.Context, dir string, opt Options) (*Report, error) {
	b, err := OpenBundle(dir)
	var f *Finding
	rep := &Report{Laws: []Law{LawBundle}}
	switch {
	case errors.As(err, &f):
		rep.fail(f)
		return rep, nil
	case errors.Is(err, event.ErrFuture):
		rep.incomplete("%v", err)
		return rep, nil
	case err != nil:
		return nil, err
	}
	rep, err = Verify(ctx, b, opt)
	if err = errors.Join(err, b.Close()); err != nil {
		return nil, err
	}
	rep.Laws = append([]Law{LawBundle}, rep.Laws...)
	return rep, nil
}

// OpenBundle opens the bundle in dir after checking that it consists of exactly
// the files that its signed manifest lists. An error that is a *Finding says
// what is wrong with it, one that wraps event.ErrFuture that it takes a newer
// version to read it; anything else is an error of reading. The caller closes
// the bundle.
func OpenBundle(dir string) (*Bundle, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open bundle: %w", err)
	}
	b := &Bundle{root: root}
	if err := b.check(); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return b, nil
}

// Close releases the directory.
func (b *Bundle) Close() error { return b.root.Close() }

func (b *Bundle) check() error {
	text, err := b.small(fileKey)
	if err != nil {
		return err
	}
	line, full := strings.CutSuffix(string(text), "\n")
	if b.key, err = parseKey(line); err != nil || !full {
		return damaged(fileKey, "%v", errKey)
	}
	if text, err = b.small(fileManifest); err != nil {
		return err
	}
	n, err := parseNote(text)
	if err == nil {
		err = b.key.check(n)
	}
	if err != nil {
		return damaged(fileManifest, "%v", err)
	}
	if b.m, err = parseManifest(n.text); err != nil {
		return err
	}
	listed := map[string]bool{fileManifest: true, ".": true}
	for _, f := range b.m.files {
		listed[f.name] = true
		if strings.HasPrefix(f.name, dirObjects+"/") {
			listed[dirObjects] = true
		}
		if err := b.checkFile(f); err != nil {
			return err
		}
	}
	return fs.WalkDir(b.root.FS(), ".", func(name string, _ fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !listed[name]:
			return damaged(name, "the manifest does not list it")
		}
		return nil
	})
}

func damaged(place, format string, args ...any) error {
	return &Finding{Law: LawBundle, Place: place, Reason: fmt.Sprintf(format, args...)}
}

// small reads a file that no parser accepts when it is larger than maxNote.
func (b *Bundle) small(name string) ([]byte, error) {
	f, err := b.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxNote+1))
}

// open refuses what is not a regular file before opening it: a pipe in place of
// a file would block for ever.
func (b *Bundle) open(name string) (*os.File, error) {
	info, err := b.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, damaged(name, "the file is missing")
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, damaged(name, "not a regular file")
	}
	return b.root.Open(name)
}

func (b *Bundle) checkFile(want file) error {
	f, err := b.open(want.name)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	switch {
	case err != nil:
		return err
	case uint64(n) != want.size:
		return damaged(want.name, "%d bytes long, the manifest says %d", n, want.size)
	case event.Digest(h.Sum(nil)) != want.sum:
		return damaged(want.name, "the content is not what the manifest says")
	}
	return nil
}

// Extent implements Source with what the manifest says.
func (b *Bundle) Extent() Extent { return b.m.Extent }

// Key implements Source.
func (b *Bundle) Key() string { return b.key.text }

// Records implements Source.
func (b *Bundle) Records(context.Context) iter.Seq2[[]byte, error] {
	return b.split(fileRecords, event.MaxRecord+1, func(data []byte) int { return bytes.IndexByte(data, '\n') + 1 }, 1)
}

// Checkpoints implements Source. In the file an empty line follows each note.
func (b *Bundle) Checkpoints(context.Context) iter.Seq2[[]byte, error] {
	return b.split(fileCheckpoints, bufio.MaxScanTokenSize, noteLength, 1)
}

// noteLength returns the length of the note at the start of data and of the
// empty line after it, or 0 when the end of it is not there.
func noteLength(data []byte) int {
	text := bytes.Index(data, []byte("\n\n"))
	if text < 0 {
		return 0
	}
	rest := bytes.Index(data[text+2:], []byte("\n\n"))
	if rest < 0 {
		return 0
	}
	return text + 2 + rest + 2
}

// Hashes implements Source. It is nil when every record is in the bundle.
func (b *Bundle) Hashes(context.Context) iter.Seq2[event.Digest, error] {
	if b.m.all() {
		return nil
	}
	whole := func(data []byte) int { return min(len(data)/sha256.Size, 1) * sha256.Size }
	return func(yield func(event.Digest, error) bool) {
		for data, err := range b.split(fileHashes, sha256.Size, whole, 0) {
			var d event.Digest
			copy(d[:], data)
			if !yield(d, err) {
				return
			}
		}
	}
}

// split yields the pieces of a file whose lengths the function length finds,
// without their last cut bytes.
func (b *Bundle) split(name string, limit int, length func([]byte) int, cut int) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		f, err := b.open(name)
		if err != nil {
			yield(nil, err)
			return
		}
		defer f.Close()
		s := bufio.NewScanner(f)
		s.Buffer(make([]byte, 0, 64<<10), max(limit, 64<<10))
		s.Split(func(data []byte, atEOF bool) (int, []byte, error) {
			n := length(data)
			if n == 0 && atEOF && len(data) > 0 {
				return 0, nil, damaged(name, "the last %d bytes are not complete", len(data))
			}
			if n == 0 {
				return 0, nil, nil
			}
			return n, data[:n-cut], nil
		})
		for s.Scan() {
			if !yield(s.Bytes(), nil) {
				return
			}
		}
		if errors.Is(s.Err(), bufio.ErrTooLong) {
			yield(nil, damaged(name, "a part of it is too long"))
		} else if s.Err() != nil {
			yield(nil, fmt.Errorf("read %s: %w", name, s.Err()))
		}
	}
}

// Object implements Source.
func (b *Bundle) Object(_ context.Context, d event.Digest) ([]byte, error) {
	f, err := b.root.Open(dirObjects + "/" + d.String())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoObject
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}
