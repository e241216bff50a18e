package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
)

// packages hold the tests that start a broker.
var packages = []string{"./internal/rabbittest/...", "./internal/broker/rabbitmq/...", "./internal/integration/..."}

func run(args []string, out, errs io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := matrix(ctx, args, out); err != nil {
		fmt.Fprintln(errs, "matrix:", err)
		return 1
	}
	return 0
}

func matrix(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("matrix", flag.ContinueOnError)
	list := flags.String("must", "", "file that lists pitfalls and their tests")
	dir := flags.String("dir", ".", "root of the tree")
	timeout := flags.String("timeout", "20m", "limit of one package on one version")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return errors.New("say which versions: VERSION=ROOT …")
	}
	text, err := os.ReadFile(*list)
	if err != nil {
		return err
	}
	pitfalls, err := parsePitfalls(string(text))
	if err != nil {
		return err
	}
	columns, roots := make([]*results, flags.NArg()), make([]string, flags.NArg())
	shared := &oneAtATime{w: out}
	for i, arg := range flags.Args() {
		version, root, ok := strings.Cut(arg, "=")
		if !ok {
			return fmt.Errorf("%q: want VERSION=ROOT", arg)
		}
		columns[i], roots[i] = newResults(version, shared), root
	}
	// Side by side: the tests wait for brokers most of their time.
	errs := make([]error, len(columns))
	var all sync.WaitGroup
	for i, r := range columns {
		all.Go(func() { errs[i] = test(ctx, r, *dir, roots[i], *timeout) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return report(out, pitfalls, columns)
}

// oneAtATime keeps the lines of several runs whole.
type oneAtATime struct {
	mu sync.Mutex
	w  io.Writer
}

func (o *oneAtATime) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.w.Write(b)
}

// test runs the packages against one version and collects what became of each
// test. A failed test is no error here: the report has it.
func test(ctx context.Context, r *results, dir, root, timeout string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json", "-count=1", "-timeout", timeout}, packages...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "REDRIVE_RABBITMQ_ROOT="+root, "REDRIVE_RABBITMQ_VERSION="+r.version)
	// The tests end their brokers before they end themselves.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = r.read(pipe)
	end := cmd.Wait()
	if err != nil {
		return err
	}
	var exit *exec.ExitError
	if errors.As(end, &exit) && r.failed() > 0 {
		return nil
	}
	return end
}
