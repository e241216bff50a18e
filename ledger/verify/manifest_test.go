package verify

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func someManifest() *manifest {
	return &manifest{Extent: Extent{Origin: origin, First: 1, Last: 3, Size: 3, Records: 3, Epoch: 1},
		files: []file{{name: fileCheckpoints}, {name: fileKey}, {name: fileRecords, size: 5}}}
}

func (m *manifest) drop(name string) {
	m.files = slices.DeleteFunc(m.files, func(f file) bool { return f.name == name })
}

func TestManifestRefuses(t *testing.T) {
	hashes := file{name: fileHashes, size: 96}
	for name, c := range map[string]struct {
		reason string
		edit   func(m *manifest)
	}{
		"nothing wrong":         {"", func(*manifest) {}},
		"a generation":          {"", func(m *manifest) { m.Gen, m.Records, m.files = 4, 2, append(m.files, hashes) }},
		"a time":                {"", func(m *manifest) { m.To, m.First, m.files = 9, 2, append(m.files, hashes) }},
		"no key":                {"not listed", func(m *manifest) { m.drop(fileKey) }},
		"no records":            {"not listed", func(m *manifest) { m.drop(fileRecords) }},
		"no checkpoints":        {"not listed", func(m *manifest) { m.drop(fileCheckpoints) }},
		"no hashes":             {"not listed", func(m *manifest) { m.Gen = 4 }},
		"needless hashes":       {"one too many", func(m *manifest) { m.files = append(m.files, hashes) }},
		"short hashes":          {"96 bytes of hashes for 4", func(m *manifest) { m.Gen, m.Size, m.Last, m.files = 4, 4, 4, append(m.files, hashes) }},
		"listed twice":          {"twice", func(m *manifest) { m.files = append(m.files, file{name: fileKey}) }},
		"unknown file":          {"no place", func(m *manifest) { m.files = append(m.files, file{name: "notes"}) }},
		"object under a name":   {"its name", func(m *manifest) { m.files = append(m.files, file{name: "objects/x"}) }},
		"range from zero":       {"of the range 0-3", func(m *manifest) { m.To, m.First, m.files = 9, 0, append(m.files, hashes) }},
		"range backwards":       {"of the range 3-2", func(m *manifest) { m.To, m.First, m.Last, m.files = 9, 3, 2, append(m.files, hashes) }},
		"range beyond":          {"of the range 1-4", func(m *manifest) { m.To, m.Last, m.files = 9, 4, append(m.files, hashes) }},
		"no record":             {"0 records", func(m *manifest) { m.Gen, m.Records, m.files = 4, 0, append(m.files, hashes) }},
		"more records than all": {"4 records", func(m *manifest) { m.Gen, m.Records, m.files = 4, 4, append(m.files, hashes) }},
		"part of all":           {"does not have the range 1-2", func(m *manifest) { m.Last = 2 }},
		"part of a generation":  {"does not have the range 2-3", func(m *manifest) { m.Gen, m.First, m.files = 4, 2, append(m.files, hashes) }},
		"all but one":           {"does not have the range 1-3", func(m *manifest) { m.Records = 2 }},
		"no origin":             {"no origin", func(m *manifest) { m.Origin = "" }},
		"a line feed in a name": {"canonical", func(m *manifest) { m.files[0].name = fileCheckpoints + "\n" }},
		"a space in a name":     {"canonical", func(m *manifest) { m.files[0].name = "check points" }},
	} {
		m := someManifest()
		c.edit(m)
		got, err := parseManifest(m.text())
		switch {
		case c.reason == "" && (err != nil || !bytes.Equal(got.text(), m.text())):
			t.Errorf("%s: %v", name, err)
		case c.reason != "" && (err == nil || got != nil || !strings.Contains(err.Error(), c.reason)):
			t.Errorf("%s: %v", name, err)
		}
	}
}
