package verify

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redrivehq/redrive/ledger/event"
)

// Names of files in a bundle.
const (
	fileManifest    = "MANIFEST"
	fileKey         = "key"
	fileRecords     = "records"
	fileHashes      = "hashes"
	fileCheckpoints = "checkpoints"
	dirObjects      = "objects"
)

// bundleVersion is the first line of a manifest; bundleFormat is what all
// versions of it have in common.
const (
	bundleFormat  = "redrive-bundle/"
	bundleVersion = bundleFormat + "1"
)

// manifest is the text of a bundle's MANIFEST.
type manifest struct {
	Extent
	files []file
}

type file struct {
	name string
	size uint64
	sum  event.Digest
}

// text is the one spelling of m.
func (m *manifest) text() []byte {
	slices.SortFunc(m.files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	out := fmt.Appendf(nil, "%s\norigin %s\nscope %s\nrange %d-%d\nrecords %d\nsize %d\nepoch %d\n",
		bundleVersion, m.Origin, m.Scope, m.First, m.Last, m.Records, m.Size, m.Epoch)
	for _, f := range m.files {
		out = fmt.Appendf(out, "file %s %d %s\n", f.sum, f.size, f.name)
	}
	return out
}

// String is "all", "generation N" or "time FROM-TO".
func (s Scope) String() string {
	switch {
	case s.Gen != 0:
		return fmt.Sprintf("generation %d", s.Gen)
	case s.To != 0:
		return fmt.Sprintf("time %d-%d", s.From, s.To)
	}
	return "all"
}

// parseManifest is the inverse of text: what it read is written again and
// compared, so only the values have to be looked at here.
func parseManifest(text []byte) (*manifest, error) {
	lines := strings.Split(string(text), "\n")
	if strings.HasPrefix(lines[0], bundleFormat) && lines[0] != bundleVersion {
		return nil, fmt.Errorf("bundle of format %q: %w", lines[0], event.ErrFuture)
	}
	if len(lines) < 8 {
		return nil, errManifest("it ends early")
	}
	m := &manifest{}
	m.Origin = strings.TrimPrefix(lines[1], "origin ")
	switch scope, what, _ := strings.Cut(strings.TrimPrefix(lines[2], "scope "), " "); scope {
	case "generation":
		n, _ := strconv.ParseUint(what, 10, 32)
		m.Gen = event.GenerationNo(n)
	case "time":
		m.From, m.To = span(what)
	}
	m.First, m.Last = span(strings.TrimPrefix(lines[3], "range "))
	for i, p := range []*uint64{&m.Records, &m.Size, &m.Epoch} {
		_, n, _ := strings.Cut(lines[4+i], " ")
		*p, _ = strconv.ParseUint(n, 10, 64)
	}
	for _, line := range lines[7 : len(lines)-1] {
		m.files = append(m.files, parseFile(line))
	}
	if !bytes.Equal(m.text(), text) {
		return nil, errManifest("it is not in canonical form")
	}
	if err := m.validate(); err != nil {
		return nil, err
	}
	return m, nil
}

func span(s string) (first, last uint64) {
	a, b, _ := strings.Cut(s, "-")
	first, _ = strconv.ParseUint(a, 10, 64)
	last, _ = strconv.ParseUint(b, 10, 64)
	return first, last
}

func parseFile(line string) (f file) {
	if part := strings.Split(line, " "); len(part) == 4 {
		f.sum, _ = event.ParseDigest(part[1])
		f.size, _ = strconv.ParseUint(part[2], 10, 64)
		f.name = part[3]
	}
	return f
}

// validate checks that the values fit together.
func (m *manifest) validate() error {
	names, err := m.names()
	switch {
	case err != nil:
		return err
	case !names[fileKey] || !names[fileRecords] || !names[fileCheckpoints] || names[fileHashes] == m.all():
		return errManifest("a file that this scope needs is not listed, or one too many is")
	case m.First == 0 || m.First > m.Last || m.Last > m.Size || m.Records == 0 || m.Records > m.Size:
		return errManifest("%d records of the range %d-%d of %d", m.Records, m.First, m.Last, m.Size)
	case m.To == 0 && (m.First != 1 || m.Last != m.Size) || m.all() && m.Records != m.Size:
		return errManifest("scope %s does not have the range %d-%d", m.Scope, m.First, m.Last)
	case m.Origin == "":
		return errManifest("it has no origin")
	}
	return nil
}

// names returns the names of the files, each of which has its place.
func (m *manifest) names() (map[string]bool, error) {
	names := map[string]bool{}
	for _, f := range m.files {
		name, object := strings.CutPrefix(f.name, dirObjects+"/")
		switch {
		case names[f.name]:
			return nil, errManifest("%q is listed twice", f.name)
		case object && name != f.sum.String():
			return nil, errManifest("object %q does not hash to its name", f.name)
		case !object && !slices.Contains([]string{fileKey, fileRecords, fileHashes, fileCheckpoints}, f.name):
			return nil, errManifest("a file %.80q has no place in a bundle", f.name)
		case f.name == fileHashes && f.size != m.Size*uint64(len(f.sum)):
			return nil, errManifest("%d bytes of hashes for %d records", f.size, m.Size)
		}
		names[f.name] = true
	}
	return names, nil
}

func errManifest(format string, args ...any) error {
	return &Finding{Law: LawBundle, Place: fileManifest, Reason: fmt.Sprintf(format, args...)}
}
