package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/redrivehq/redrive/internal/api"
	"github.com/redrivehq/redrive/internal/report"
	"github.com/redrivehq/redrive/internal/safetext"
)

// reportOptions are the flags of a report.
type reportOptions struct {
	format, out string
	overwrite   bool
	members     api.MembersRequest
}

func newReport(c *command) *cobra.Command {
	o := reportOptions{}
	cmd := &cobra.Command{
		Use: "report GENERATION", Short: "Print the statement: what became of it, what remains, who owns it", Args: cobra.ExactArgs(1),
		Long: `Print the statement: what became of a generation, what remains, and who owns its
business resolution. As text, as JSON with its whole course, as CSV with one row
for each member, or as one HTML page that needs nothing else.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.members.ID, o.members.As = args[0], c.as
			if c.json && !cmd.Flags().Changed("format") {
				o.format = "json"
			}
			if c.json && o.format != "json" {
				return usageError{fmt.Errorf("--json and --format %s contradict each other: give one", o.format)}
			}
			write, err := o.writer(c)
			if err != nil {
				return err
			}
			return c.with(cmd, func(ctx context.Context, s api.Caller) error {
				if o.out == "" {
					return write(ctx, s, c.out)
				}
				return toFile(o.out, o.overwrite, func(w io.Writer) error { return write(ctx, s, w) })
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.format, "format", "text", "text, json, csv or html")
	f.StringVar(&o.out, "out", "", "file to write, of mode 0600")
	f.BoolVar(&o.overwrite, "overwrite", false, "replace the file if it exists")
	f.BoolVar(&o.members.WithIdentity, "with-identity", false, "csv: with operations and message ids; needs --why and is recorded")
	f.StringVar(&o.members.Why, "why", "", "why identities are needed")
	return cmd
}

// writer is how a format is written.
func (o *reportOptions) writer(c *command) (func(context.Context, api.Caller, io.Writer) error, error) {
	if o.members.WithIdentity && o.format != "csv" {
		return nil, usageError{errors.New("--with-identity belongs to --format csv")}
	}
	ask := func(ctx context.Context, s api.Caller) (api.Report, error) {
		return api.Call(ctx, s, api.GenerationReport, api.GenerationRef{ID: o.members.ID}, nil)
	}
	switch o.format {
	case "text":
		return func(ctx context.Context, s api.Caller, w io.Writer) error {
			r, err := ask(ctx, s)
			if err != nil {
				return err
			}
			to := *c
			to.out = w
			_, _ = w.Write([]byte(safetext.Block(r.Text))) // made safe line by line
			to.tally(&r.Generation)
			return nil
		}, nil
	case "json":
		return func(ctx context.Context, s api.Caller, w io.Writer) error {
			r, err := ask(ctx, s)
			if err != nil {
				return err
			}
			to := *c
			to.out, to.json = w, true
			return to.print(r, nil)
		}, nil
	case "html":
		return func(ctx context.Context, s api.Caller, w io.Writer) error {
			r, err := ask(ctx, s)
			if err != nil {
				return err
			}
			return report.HTML(w, r, time.Now())
		}, nil
	case "csv":
		return o.csv, nil
	}
	return nil, usageError{fmt.Errorf("--format %q: want text, json, csv or html", o.format)}
}

// membersPage is how many rows one call brings.
const membersPage = 5000

// csv writes one row for each member, page by page.
func (o *reportOptions) csv(ctx context.Context, s api.Caller, w io.Writer) error {
	out := report.NewCSV(w, o.members.WithIdentity)
	for req, first := o.members, true; first || req.From > 0; first = false {
		req.Limit = membersPage
		page, err := api.Call(ctx, s, api.GenerationMembers, req, nil)
		if err != nil {
			return err
		}
		if first {
			if err := out.Header(); err != nil {
				return err
			}
		}
		for i := range page.Members {
			if err := out.Row(&page.Members[i]); err != nil {
				return err
			}
		}
		req.From = page.Next
	}
	return out.Flush()
}

// toFile writes a file that only its owner can read. What is there already stays
// unless it is to be replaced, and then until the new one is whole.
func toFile(path string, replace bool, write func(io.Writer) error) (err error) {
	if !replace {
		// Reserved before anything is asked, and recorded, for it.
		own, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		switch {
		case errors.Is(err, os.ErrExist):
			return &exitError{code: exitRefused, text: path + " exists and was left as it is: give another name, or --overwrite"}
		case err != nil:
			return usageError{fmt.Errorf("write the report: %w", err)}
		}
		_ = own.Close() // nothing was written
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return usageError{fmt.Errorf("write the report: %w", err)}
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // is not whole
			if !replace {
				_ = os.Remove(path) // the empty one from above
			}
		}
	}()
	b := bufio.NewWriter(f)
	err = write(b)
	err = errors.Join(err, b.Flush(), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
