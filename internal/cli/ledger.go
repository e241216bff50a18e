package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/note"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/app"
	"github.com/redrivehq/redrive/internal/safetext"
)

func newLedger(c *command) *cobra.Command {
	cmd := &cobra.Command{Use: "ledger", Short: "Read, verify and export the book of everything that happened"}
	cmd.AddCommand(newTail(c), newVerify(c), newExport(c), newCheckpoint(c))
	return cmd
}

func newTail(c *command) *cobra.Command {
	req := api.TailRequest{}
	cmd := &cobra.Command{
		Use: "tail", Short: "Print records as they stand in the ledger", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.with(cmd, func(ctx context.Context, s api.Caller) error {
				p, err := api.Call(ctx, s, api.LedgerTail, req, nil)
				if err != nil {
					return err
				}
				for _, r := range p.Records { // records are JSON: the same with --json
					if _, err := fmt.Fprintln(c.out, safeJSON(string(r))); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	cmd.Flags().Uint64Var(&req.From, "from", 0, "first position; default: the last records")
	cmd.Flags().IntVar(&req.Limit, "limit", 20, "1 to 500")
	cmd.Flags().StringVar(&req.Generation, "generation", "", "only this generation")
	return cmd
}

func newVerify(c *command) *cobra.Command {
	req := api.VerifyRequest{}
	var bundle, pub string
	cmd := &cobra.Command{
		Use: "verify", Short: "Check that the ledger was not changed", Args: cobra.NoArgs,
		Long: `Check that the ledger was not changed: of the data directory, or of a bundle.

Exit codes: 0 verified, everything asked for was checked · 1 mismatch · 2 usage ·
3 incomplete: something could not be checked.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if pub != "" {
				b, err := os.ReadFile(pub)
				if err != nil {
					return usageError{fmt.Errorf("read the trusted key: %w", err)}
				}
				req.Pub = strings.TrimSpace(string(b))
				if _, err := note.NewVerifier(req.Pub); err != nil {
					return usageError{fmt.Errorf("%s holds no verifier key: want the file keys/verifier of the store", pub)}
				}
			}
			var r api.VerifyResult
			err := c.verify(cmd, bundle, req, &r)
			if err != nil {
				return err
			}
			if err := c.print(r, func() { c.verdict(&r) }); err != nil {
				return err
			}
			if r.ExitCode != 0 {
				return &exitError{code: r.ExitCode}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&bundle, "bundle", "", "bundle directory; default: the data directory")
	cmd.Flags().StringVar(&pub, "pub", "", "file with a verifier key that you trust; without it authenticity is not proven")
	cmd.Flags().BoolVar(&req.Replay, "replay", false, "recompute every generation and check the laws at every position")
	cmd.Flags().BoolVar(&req.Payloads, "payloads", false, "open every original and check its commitment")
	return cmd
}

func (c *command) verify(cmd *cobra.Command, bundle string, req api.VerifyRequest, r *api.VerifyResult) error {
	if bundle != "" {
		var err error
		*r, err = app.VerifyBundle(cmd.Context(), bundle, req)
		return err
	}
	err := c.with(cmd, func(ctx context.Context, s api.Caller) error {
		var err error
		*r, err = api.Call(ctx, s, api.LedgerVerify, req, nil)
		return err
	})
	// A ledger that cannot be opened for being damaged is what this is for.
	var e *api.Error
	if errors.As(err, &e) && (e.Code == api.CodeIntegrity || e.Code == api.CodeNewer) {
		*r, err = app.VerifyDamaged(cmd.Context(), c.settings(cmd), req)
	}
	if errors.As(err, &e) && e.Code == api.CodeIntegrity {
		return &exitError{code: exitFailed, text: e.Message} // a mismatch, by the codes of this command
	}
	return err
}

func (c *command) verdict(r *api.VerifyResult) {
	c.say("%s: %d records, %s checkpoints, root %s", r.Verdict, r.Records, r.Checkpoints, r.Root)
	for _, x := range []struct {
		name string
		list []string
	}{{"MISMATCH", r.Mismatches}, {"not checked", r.Incomplete}, {"warning", r.Warnings}} {
		for _, line := range x.list {
			c.say("  %s  %s", x.name, line)
		}
	}
}

func newExport(c *command) *cobra.Command {
	req := api.ExportRequest{}
	var from, to string
	cmd := &cobra.Command{
		Use: "export", Short: "Write a bundle that can be verified without this program's store", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			req.As = c.as
			for _, x := range []struct {
				text string
				to   **time.Time
			}{{from, &req.From}, {to, &req.To}} {
				if x.text == "" {
					continue
				}
				t, err := time.Parse(time.RFC3339, x.text)
				if err != nil {
					return usageError{errors.New("--from and --to want RFC 3339, as in 2026-11-30T12:00:00Z")}
				}
				*x.to = &t
			}
			return ask(c, cmd, api.LedgerExport, req, func(r api.ExportResult) {
				c.say("Wrote %s, the ledger has %d records. Check it with: redrive ledger verify --bundle %s", r.Dir, r.Size, r.Dir)
			})
		},
	}
	cmd.Flags().StringVar(&req.Dir, "out", "", "directory, which must not exist yet")
	cmd.Flags().StringVar(&req.Generation, "generation", "", "only this generation")
	cmd.Flags().StringVar(&from, "from", "", "only records from this time on")
	cmd.Flags().StringVar(&to, "to", "", "only records up to this time")
	return cmd
}

func newCheckpoint(c *command) *cobra.Command {
	return &cobra.Command{
		Use: "checkpoint", Short: "Sign the ledger as it is now and print the checkpoint", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(c, cmd, api.LedgerCheckpoint, api.None{}, func(r api.CheckpointInfo) {
				c.say("%d records", r.Size)
				_, _ = c.out.Write([]byte(safetext.Block(r.Signed)))
			})
		},
	}
}

func newStore(c *command) *cobra.Command {
	cmd := &cobra.Command{Use: "store", Short: "Care for the store"}
	check := &cobra.Command{
		Use: "check", Short: "Look for contradictions in what the store holds", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var ok bool
			err := ask(c, cmd, api.StoreCheck, api.None{}, func(r api.StoreReport) {
				c.say("%d contradictions in %d records, %d envelopes", len(r.Problems), r.Records, r.Envelopes)
				for _, p := range r.Problems {
					c.say("  PROBLEM  %s", p)
				}
			}, func(r api.StoreReport) { ok = r.OK })
			return integrity(err, ok)
		},
	}
	var req api.RebuildRequest
	rebuild := &cobra.Command{
		Use: "rebuild", Short: "Derive all state from the ledger again and compare it", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var ok bool
			err := ask(c, cmd, api.StoreRebuild, req, func(r api.RebuildReport) {
				c.say("%d records, state %s", r.Records, r.Digest)
				for _, d := range r.Differences {
					c.say("  DIFFERENCE  %s", d)
				}
			}, func(r api.RebuildReport) { ok = r.OK })
			return integrity(err, ok)
		},
	}
	rebuild.Flags().BoolVar(&req.Check, "check", false, "compare with the live state (required)")
	compact := &cobra.Command{
		Use: "compact", Short: "Rewrite the store so that nothing erased is left in its files", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			before, after, err := app.Compact(cmd.Context(), c.settings(cmd))
			if err != nil {
				return err
			}
			return c.print(map[string]int64{"before": before, "after": after}, func() {
				c.say("The store had %d KiB and has %d KiB now.", before>>10, after>>10)
			})
		},
	}
	cmd.AddCommand(check, rebuild, compact)
	return cmd
}

func integrity(err error, ok bool) error {
	if err == nil && !ok {
		return &exitError{code: exitIntegrity, text: "the store contradicts itself: stop, keep a copy, and run: redrive ledger verify --replay --payloads"}
	}
	return err
}
