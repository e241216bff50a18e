package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/app"
	"github.com/redrivehq/redrive/internal/safetext"
)

// command is what all commands share.
type command struct {
	out, err io.Writer
	data     string
	config   string
	as       string
	json     bool
	verbose  bool
}

// Main runs the command line and returns its exit code.
func Main(args []string, stdout, stderr io.Writer) int {
	if err := app.HideMemory(); err != nil {
		_, _ = fmt.Fprintln(stderr, "redrive: a core file of this process would hold its keys:", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return Run(ctx, args, stdout, stderr)
}

// Run is Main with a context, for tests.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) (code int) {
	c := &command{out: stdout, err: stderr}
	defer func() {
		if p := recover(); p != nil {
			_, _ = fmt.Fprintf(stderr, "redrive: defect: %v\nNothing that was not confirmed is claimed. Please report this with the command that you ran.\n", p)
			code = exitFailed
		}
	}()
	root := newRoot(c)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err != nil && (strings.HasPrefix(err.Error(), "required flag") || strings.HasPrefix(err.Error(), "unknown command")) {
		err = usageError{err} // cobra has no type for these
	}
	var e *api.Error
	if errors.Is(err, context.Canceled) || errors.As(err, &e) && e.Code == api.CodeCancelled && e.Message == context.Canceled.Error() {
		err = &api.Error{Code: api.CodeCancelled, Message: "interrupted; what was decided stays decided"}
	}
	if err != nil && err.Error() != "" {
		// Further lines stand back, so that no text in a message passes for one.
		_, _ = fmt.Fprintln(stderr, "redrive:", strings.ReplaceAll(safetext.Block(err.Error()), "\n", "\n  "))
	}
	return exitCode(err)
}

func newRoot(c *command) *cobra.Command {
	root := &cobra.Command{
		Use:   "redrive",
		Short: "Release dead-lettered messages under control",
		Long: `redrive takes poison messages out of the way, keeps each one exactly as it was,
and releases it again under control, so that afterwards anyone can prove what
happened to every message.

Exit codes: 0 done · 1 failed · 2 usage · 3 refused or incomplete · 4 stopped
by a threshold · 5 finished, but some are missing, ambiguous, undelivered or
came back · 6 integrity · 75 temporary, try again.`,
		SilenceErrors: true, SilenceUsage: true, Version: Version(),
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w; see: %s --help", err, cmd.CommandPath())}
	})
	f := root.PersistentFlags()
	f.StringVar(&c.data, "data", envOr("REDRIVE_DATA", "redrive-data"), "data directory (REDRIVE_DATA)")
	f.StringVar(&c.config, "config", os.Getenv("REDRIVE_CONFIG"), "configuration file (REDRIVE_CONFIG); default DATA/redrive.yaml")
	f.StringVar(&c.as, "as", "", "name to record beside the user; proves nothing")
	f.BoolVar(&c.json, "json", false, "print JSON")
	f.BoolVar(&c.verbose, "verbose", false, "log to stderr")
	root.AddCommand(newInit(c), newDoctor(c), newVersion(c), newDemo(c), newCapture(c), newSource(c), newDLQ(c), newEnvelope(c),
		newGeneration(c), newOutcome(c), newPolicy(c), newWorker(c), newLedger(c), newStore(c), newStatus(c))
	needVerbs(root)
	explainExits(root)
	return root
}

// needVerbs makes a noun without a verb, and any unknown word, an error of
// usage.
func needVerbs(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		needVerbs(sub)
	}
	if cmd.RunE == nil && cmd.Run == nil && cmd.HasSubCommands() {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unknown command %q; see: %s --help", args[0], cmd.CommandPath())}
			}
			return errors.Join(cmd.Help(), &exitError{code: exitUsage})
		}
	}
	if args := cmd.Args; args != nil {
		cmd.Args = func(cmd *cobra.Command, a []string) error {
			if err := args(cmd, a); err != nil {
				return usageError{fmt.Errorf("%w; see: %s --help", err, cmd.CommandPath())}
			}
			return nil
		}
	}
}

func envOr(name, fallback string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return fallback
}

// Version is the version from the build information.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	if v == "" || v == "(devel)" {
		v = "devel"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && v == "devel" {
			v += "+" + s.Value[:min(len(s.Value), 12)]
		}
	}
	return v
}

func (c *command) settings(cmd *cobra.Command) app.Settings {
	s := app.Settings{Data: c.data, Config: c.config, Command: cmd.CommandPath(), Version: Version()}
	if c.verbose {
		s.Logger = slog.New(slog.NewJSONHandler(c.err, nil))
	}
	return s
}

// closePatience bounds how long a command waits at its end for calls that
// other shells have under way.
const closePatience = 24 * time.Hour

// with runs fn with a way to the store and closes it in order.
func (c *command) with(cmd *cobra.Command, fn func(ctx context.Context, s api.Caller) error) (err error) {
	ctx := cmd.Context()
	s, err := app.Connect(ctx, c.settings(cmd))
	if err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), closePatience)
		defer cancel()
		if ctx.Err() != nil {
			// Interrupted: whoever else uses this process is cut off soon.
			end, cancel = context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
		}
		if e := s.Close(end); e != nil && err == nil {
			err = e
		}
	}()
	return fn(ctx, s)
}

// ask is a command that calls one operation and prints its answer. Then gets
// the answer also when it is printed as JSON.
func ask[Req, Resp any](c *command, cmd *cobra.Command, op api.Op[Req, Resp], req Req, show func(Resp), then ...func(Resp)) error {
	return c.with(cmd, func(ctx context.Context, s api.Caller) error {
		resp, err := api.Call(ctx, s, op, req, nil)
		if err != nil {
			return err
		}
		for _, fn := range then {
			fn(resp)
		}
		return c.print(resp, func() { show(resp) })
	})
}
