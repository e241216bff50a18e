package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/safetext"
)

func newReconcile(c *command) *cobra.Command {
	req := api.ReconcileRequest{}
	cmd := &cobra.Command{
		Use: "reconcile GENERATION", Short: "Hold a generation against business data: effects that are missing, double or unexpected", Args: cobra.ExactArgs(1),
		Long: `Hold a generation against business data, which says for each operation how many
effects it had: a file (columns operation,count,status), or a query on PostgreSQL
with $1, the array of operations.

An effect settles a member whose outcome nobody reported. A missing member without
one can be planned again, with the risk of a duplicate recorded. Nothing is sent.

Exit codes: 0 everything was checked and is as it should be · 3 nothing is wrong,
but not all could be checked · 5 effects are missing, double, unexpected, or
contradict what was reported.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			req.ID, req.As = args[0], c.as
			if err := completeReconcile(&req); err != nil {
				return usageError{err}
			}
			var r api.Reconciliation
			err := c.with(cmd, func(ctx context.Context, s api.Caller) error {
				p := c.progress()
				var err error
				r, err = api.Call(ctx, s, api.GenerationReconcile, req, p.show)
				p.end()
				if err != nil {
					return err
				}
				return c.print(r, func() { c.showReconciliation(&r) })
			})
			if err != nil {
				return err
			}
			if r.Double+r.NotEffected+r.Unexpected > 0 || len(r.Members) > 0 {
				return &exitError{code: exitUnfinished}
			}
			if open := r.Early + r.NotCheckable; open > 0 {
				// Nothing known is not the same as nothing wrong.
				return &exitError{code: exitRefused, text: fmt.Sprintf("incomplete: of %d released members nothing is proven", open)}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.File, "evidence", "", "file that ends in .csv, .ndjson or .jsonl")
	f.StringVar(&req.Address, "evidence-sql", "", "postgres://USER@HOST:PORT/DATABASE, without a password")
	f.StringVar(&req.Query, "query", "", "query with $1, or @FILE; gives operation, count, and perhaps status")
	f.StringVar(&req.PasswordFile, "evidence-password-file", "", "file of mode 0600 (default: PGPASSWORD or the file of PGPASSFILE, of the process that holds the store)")
	f.BoolVar(&req.DryRun, "dry-run", false, "show what would be found, write nothing")
	f.BoolVar(&req.Close, "close", false, "close the generation with the numbers found")
	f.StringVar(&req.Why, "why", "", "why what stays open is acceptable (required to close with open questions)")
	return cmd
}

// completeReconcile reads a query from its file, and makes paths mean the same
// to the process that holds the store.
func completeReconcile(req *api.ReconcileRequest) error {
	switch {
	case (req.File == "") == (req.Address == ""):
		return errors.New("give one source of evidence: --evidence FILE, or --evidence-sql ADDRESS with --query")
	case req.Address != "" && req.Query == "":
		return errors.New("--evidence-sql needs --query, which contains $1")
	case req.File != "" && req.Query != "":
		return errors.New("--query belongs to --evidence-sql")
	case req.File == "-":
		return errors.New("evidence is read from a file, not from standard input")
	}
	if path, ok := strings.CutPrefix(req.Query, "@"); ok {
		b, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read the query: %w", err)
		}
		req.Query = string(b)
	}
	for _, path := range []*string{&req.File, &req.PasswordFile} {
		if *path == "" {
			continue
		}
		abs, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = abs
	}
	return nil
}

func (c *command) showReconciliation(r *api.Reconciliation) {
	if r.DryRun {
		c.say("Dry run: nothing was written.")
	}
	c.say("Generation %d against %s evidence %.12s: %d released members checked.", r.Generation.Number, r.Source, r.Commitment, r.Checked)
	for _, x := range []struct {
		n    uint64
		what string
	}{
		{r.Effected, "have their effect"}, {r.Double, "have it more than once"},
		{r.NotEffected, "have none although they should"}, {r.None, "have none, and should not: undelivered, rejected or came back"},
		{r.Early, "have none yet: their outcome is not due, or their publish is in doubt"},
		{r.NotCheckable, "could not be checked: without an operation, or released again by another generation"},
		{r.Unexpected, "effects are of operations that no released member has"},
		{r.Freed, "can be planned again; an effect may still come, so each plan counts them as duplicate risk"},
	} {
		if x.n > 0 {
			c.say("  %d %s", x.n, x.what)
		}
	}
	if len(r.Members)+len(r.NotCheckableMembers) > 0 {
		var rows [][]string
		for _, m := range append(slices.Clone(r.Members), r.NotCheckableMembers...) {
			rows = append(rows, []string{fmt.Sprint(m.Position), m.Envelope, m.Disposition, fmt.Sprint(m.Effects), m.Finding})
		}
		c.table([]string{"position", "envelope", "disposition", "effects", "finding"}, rows)
	}
	for _, op := range r.UnexpectedOperations {
		c.say("unexpected  %s", op)
	}
	for _, s := range slices.Sorted(maps.Keys(r.Statuses)) {
		c.say("status      %s (%d)", s, r.Statuses[s])
	}
	if r.Text != "" {
		_, _ = c.out.Write([]byte(safetext.Block(r.Text))) // made safe line by line
	}
}
