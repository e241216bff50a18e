package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redrivehq/redrive/internal/api"
)

func newRepair(c *command) *cobra.Command {
	var req api.RepairRequest
	choice := api.RepairChoice{}
	var patch, body string
	var use uint64
	cmd := &cobra.Command{
		Use: "repair ID", Short: "Make a corrected version that goes out in the place of the original", Args: cobra.ExactArgs(1),
		Long: `Make a corrected version of one envelope, which goes out in its place. The
original stays as it is. Repairs are numbered, and one of them is live; --use,
--withdraw and --approve say which, and --use 0 is the original. With --dry-run
nothing is written: it shows what would change.

The operation identity stays the same. Another one needs --new-command with
--operation, and goes out only after somebody else has approved it.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			f := cmd.Flags()
			if f.Changed("use") {
				choice.Use = &use
			}
			if choice.Use != nil || f.Changed("withdraw") || f.Changed("approve") {
				if err := onlyChooses(f); err != nil {
					return err
				}
				choice.ID, choice.Why, choice.As = args[0], req.Why, c.as
				return c.chooseRepair(cmd, choice)
			}
			req.ID, req.As, req.WholeBody = args[0], c.as, f.Changed("body")
			for _, x := range []struct {
				path string
				to   *[]byte
			}{{patch, &req.Patch}, {body, &req.Body}} {
				if x.path == "" {
					continue
				}
				b, err := readFile(cmd.InOrStdin(), x.path)
				if err != nil {
					return usageError{err}
				}
				*x.to = b
			}
			return ask(c, cmd, api.EnvelopeRepair, req, c.showRepair)
		},
	}
	f := cmd.Flags()
	f.StringVar(&patch, "patch", "", "file with a JSON Patch (RFC 6902) for the body; - is standard input")
	f.StringVar(&body, "body", "", "file with the whole new body; - is standard input")
	f.StringVar(&req.ContentType, "content-type", "", "content type to set")
	f.StringArrayVar(&req.SetHeaders, "set-header", nil, "NAME=VALUE to put on as a string, may be given again")
	f.BoolVar(&req.NewCommand, "new-command", false, "it is another business command, with an identity of its own")
	f.StringVar(&req.Operation, "operation", "", "the identity of the new command, which the repaired message has to carry")
	f.BoolVar(&req.DryRun, "dry-run", false, "show what would change, write nothing")
	f.BoolVar(&req.Raw, "raw", false, "show values; needs --why, and is recorded like a view of the payload")
	f.Uint64Var(&use, "use", 0, "make this repair the live one; 0 is the original")
	f.Uint64Var(&choice.Withdraw, "withdraw", 0, "take this repair back for good")
	f.Uint64Var(&choice.Approve, "approve", 0, "approve this repair, which is a new command")
	f.StringVar(&choice.Commitment, "commitment", "", "of the repair that was looked at; default: the one that is there now")
	f.StringVar(&req.Why, "why", "", "why")
	return cmd
}

// onlyChooses refuses what a word about a repair does not take: ignored, a
// --dry-run would write.
func onlyChooses(f *pflag.FlagSet) error {
	for _, name := range []string{"patch", "body", "content-type", "set-header", "new-command", "operation", "dry-run", "raw"} {
		if f.Changed(name) {
			return usageError{fmt.Errorf("--%s makes a repair, and --use, --withdraw and --approve choose one that is there: give them apart", name)}
		}
	}
	return nil
}

// maxInput bounds the files that a repair reads, in bytes.
const maxInput = 2 << 20

func readFile(stdin io.Reader, path string) ([]byte, error) {
	in := stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("read what the repair is made of: %w", err)
		}
		defer func() { _ = f.Close() }() // it was only read
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, maxInput+1))
	if err == nil && len(b) > maxInput {
		err = fmt.Errorf("%s has more than %d bytes", path, maxInput)
	}
	return b, err
}

func (c *command) chooseRepair(cmd *cobra.Command, req api.RepairChoice) error {
	return c.with(cmd, func(ctx context.Context, s api.Caller) error {
		if req.Approve > 0 && req.Commitment == "" {
			e, err := api.Call(ctx, s, api.EnvelopeShow, api.EnvelopeShowRequest{ID: req.ID}, nil)
			if err != nil {
				return err
			}
			for _, r := range e.Repairs {
				if r.Candidate == req.Approve {
					req.Commitment = r.Commitment
				}
			}
		}
		e, err := api.Call(ctx, s, api.EnvelopeRepairs, req, nil)
		if err != nil {
			return err
		}
		return c.print(e, func() {
			c.say("%s", e.ID)
			c.repairs(e.Repairs)
		})
	})
}

func (c *command) showRepair(r api.Repair) {
	switch {
	case r.Candidate == 0:
		c.say("Dry run: nothing was written. Envelope %s would change:", r.Envelope)
	case r.Live:
		c.say("Repair %d of envelope %s is live: it goes out in the place of the original.", r.Candidate, r.Envelope)
	default:
		c.say("Repair %d of envelope %s is a new command. Somebody else approves it with: redrive envelope repair %s --approve %d --why REASON", r.Candidate, r.Envelope, r.Envelope, r.Candidate)
	}
	c.differences(r.Changes)
	c.say("  body %d bytes, was %d; sha256 %s", r.SizeAfter, r.SizeBefore, r.SHA256)
}

func (c *command) differences(list []api.Difference) {
	for _, d := range list {
		switch {
		case d.From != "" && d.To != "":
			c.say("  %-8s %s %s: %s → %s", d.How, d.What, d.Path, d.From, d.To)
		default:
			c.say("  %-8s %s %s%s", d.How, d.What, d.Path, after(": ", d.From+d.To))
		}
	}
}

// repairs prints the candidates of an envelope.
func (c *command) repairs(list []api.RepairState) {
	for _, r := range list {
		state := r.State
		if r.Live {
			state = "live"
		}
		c.say("  repair %-7d %s, %s by %s: %s", r.Candidate, state, stamp(r.At), r.By, r.Why)
		if r.NewCommand {
			c.say("                 a new command%s", after(", approved by ", r.ApprovedBy))
		}
		c.say("                 diff %s", r.Diff)
	}
}

func newCompare(c *command) *cobra.Command {
	var req api.CompareRequest
	cmd := &cobra.Command{
		Use: "compare ID ID", Short: "Show in what two envelopes differ, as after identity_conflict", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if req.Raw && req.Why == "" {
				return usageError{errors.New("--raw shows content: say why with --why, it is recorded")}
			}
			req.A, req.B, req.As = args[0], args[1], c.as
			return ask(c, cmd, api.EnvelopeCompare, req, func(r api.Comparison) {
				c.say("%s and %s: %s", r.A, r.B, r.Verdict)
				c.say("  same operation %t, same meaning %t, same body %t", r.SameOperation, r.SameMeaning, r.SameBody)
				c.differences(r.Differences)
			})
		},
	}
	cmd.Flags().BoolVar(&req.Raw, "raw", false, "show values; needs --why, and is recorded like a view of the payload")
	cmd.Flags().StringVar(&req.Why, "why", "", "why")
	return cmd
}
