package bolt_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// contains reports whether any file under dir holds the bytes.
func contains(t *testing.T, dir string, what []byte) bool {
	t.Helper()
	found := false
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		found = found || bytes.Contains(b, what)
		return err
	}))
	return found
}
