package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// limit ends a check that hangs; a cold one takes a minute.
const limit = 10 * time.Minute

// Exit statuses, as the package comment lists them.
const (
	exitClean  = 0
	exitFound  = 1
	exitFailed = 2
)

// options are the flags; see run for their meaning.
type options struct {
	root, known, govulncheck, indexdb string
}

// run is the program without its process.
func run(args []string, stdout, stderr io.Writer) int {
	var o options
	flags := flag.NewFlagSet("vulncheck", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.root, "root", "../..", "folder of the module to check")
	flags.StringVar(&o.known, "known", "vulncheck/known.txt", "list of accepted advisories")
	flags.StringVar(&o.govulncheck, "govulncheck", "govulncheck", "program that checks")
	flags.StringVar(&o.indexdb, "indexdb", "indexdb", "program that indexes the database")
	if err := flags.Parse(args); err != nil {
		return exitFailed
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	clean, err := vulncheck(ctx, o, stdout)
	switch {
	case err != nil:
		fmt.Fprintln(stderr, "vulncheck:", err)
		return exitFailed
	case !clean:
		return exitFound
	}
	return exitClean
}

// vulncheck checks the module and prints what it found. It returns whether that
// is acceptable.
func vulncheck(ctx context.Context, o options, stdout io.Writer) (clean bool, err error) {
	list, err := os.Open(o.known)
	if err != nil {
		return false, err
	}
	defer list.Close()
	accepted, err := parseKnown(list)
	if err != nil {
		return false, fmt.Errorf("%s: %w", o.known, err)
	}

	database, err := os.MkdirTemp("", "vulndb-")
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(database)) }()
	if err := indexDatabase(ctx, o.indexdb, database); err != nil {
		return false, err
	}

	out, err := output(ctx, o.root, o.govulncheck, "-db", "file://"+database, "-format", "json", "-test", "./...")
	if err != nil {
		return false, fmt.Errorf("govulncheck could not check the module; does it compile? %w", err)
	}
	r, err := parseScan(bytes.NewReader(out))
	if err != nil {
		return false, err
	}
	return report(stdout, r, accepted), nil
}

// indexDatabase turns the pinned module of advisories into a database below dir.
func indexDatabase(ctx context.Context, indexdb, dir string) error {
	// go mod download rather than go list: it fetches the module when this
	// machine does not have it yet.
	out, err := output(ctx, ".", "go", "mod", "download", "-json", "golang.org/x/vulndb")
	if err != nil {
		return fmt.Errorf("cannot fetch the pinned database golang.org/x/vulndb: %w", err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		return fmt.Errorf("cannot read what go mod download printed: %w", err)
	}
	if _, err := output(ctx, ".", indexdb, "-vulns", filepath.Join(module.Dir, "data", "osv"), "-out", dir); err != nil {
		return fmt.Errorf("cannot index the database: %w", err)
	}
	return nil
}

// output runs a program in dir and returns its standard output. Its standard
// error becomes part of the error.
func output(ctx context.Context, dir, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", cmd, err, strings.TrimSpace(stderr.String()))
	}
	return stdout.Bytes(), nil
}
