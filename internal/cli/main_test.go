package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// hang is the deadline of everything that is awaited. It measures nothing.
const hang = 2 * time.Minute

const raceOptions = "atexit_sleep_ms=0"

// TestMain makes this binary the program and its test-only companions, so that
// scripts run them as processes of their own.
func TestMain(m *testing.M) {
	// Under the race detector each process would sleep a second at its end.
	_ = os.Setenv("GORACE", raceOptions) // only the time that it takes depends on it
	testscript.Main(m, map[string]func(){
		"redrive": func() { os.Exit(Main(os.Args[1:], os.Stdout, os.Stderr)) },
		"exits":   func() { os.Exit(exits(os.Args[1:])) },
		"until":   func() { os.Exit(until(os.Args[1:])) },
		"seed":    func() { os.Exit(tool(seed)) },
		"consume": func() { os.Exit(tool(consume)) },
		"depth":   func() { os.Exit(tool(depth)) },
	})
}

// exits runs "CODE redrive ARGS…" and succeeds when the program ends with
// exactly that code. Output goes where it would have gone.
func exits(args []string) int {
	want, err := strconv.Atoi(args[0])
	if err != nil || args[1] != "redrive" {
		fmt.Fprintln(os.Stderr, "usage: exits CODE redrive ARGS…")
		return 2
	}
	if got := Main(args[2:], os.Stdout, os.Stderr); got != want {
		fmt.Fprintf(os.Stderr, "exit code %d, want %d\n", got, want)
		return 1
	}
	return 0
}

// until runs "PATTERN redrive ARGS…" again and again, until what it prints
// matches.
func until(args []string) int {
	want, err := regexp.Compile(args[0])
	if err != nil || args[1] != "redrive" {
		fmt.Fprintln(os.Stderr, "usage: until PATTERN redrive ARGS…")
		return 2
	}
	var out, stderr bytes.Buffer
	for deadline := time.Now().Add(hang); time.Now().Before(deadline); {
		out.Reset()
		stderr.Reset()
		Run(context.Background(), args[2:], &out, &stderr)
		if want.Match(out.Bytes()) {
			fmt.Print(out.String())
			return 0
		}
		// Not a wait for something to be over, only a bound for how often the
		// question is asked.
		<-time.After(20 * time.Millisecond)
	}
	fmt.Fprintf(os.Stderr, "nothing matched %s; the last answer was:\n%s%s", args[0], out.String(), stderr.String())
	return 1
}

// tool runs a test-only command and reports its error.
func tool(run func(ctx context.Context, args []string) error) int {
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[0], err)
		return 1
	}
	return 0
}
