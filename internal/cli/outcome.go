package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

func newOutcomeReport(c *command) *cobra.Command {
	r := map[string]*string{}
	cmd := &cobra.Command{
		Use: "report", Short: "Report one outcome, with the stamp of the message", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := json.Marshal(r)
			if err != nil {
				return err
			}
			return c.outcomes(cmd, []string{string(b)}, "command")
		},
	}
	for _, f := range []struct{ field, flag, usage string }{
		{"generation", "generation", "header x-redrive-generation"},
		{"envelope", "envelope", "header x-redrive-envelope"},
		{"intent", "intent", "header x-redrive-intent"},
		{"mac", "mac", "header x-redrive-mac"},
		{"outcome", "outcome", "admitted, succeeded, deduplicated, rejected or ambiguous"},
		{"operation", "operation", "business identity"},
		{"effect", "effect", "reference to the business effect"},
		{"consumer_version", "consumer-version", "version of the consumer"},
		{"detail", "detail", "for people"},
	} {
		r[f.field] = cmd.Flags().String(f.flag, "", f.usage)
	}
	for _, name := range []string{"generation", "envelope", "intent", "mac", "outcome"} {
		_ = cmd.MarkFlagRequired(name) // the flags exist
	}
	return cmd
}

// maxImportLine is the longest line of an import.
const maxImportLine = 64 << 10

func newOutcomeImport(c *command) *cobra.Command {
	return &cobra.Command{
		Use: "import FILE", Short: "Take outcome reports from a file of JSON lines (- for standard input)", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			in := io.Reader(os.Stdin)
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return usageError{fmt.Errorf("open the reports: %w", err)}
				}
				defer func() { _ = f.Close() }() // was only read
				in = f
			}
			var reports []string
			lines := bufio.NewScanner(in)
			lines.Buffer(nil, maxImportLine)
			for lines.Scan() {
				if len(lines.Bytes()) > 0 {
					reports = append(reports, lines.Text())
				}
			}
			if err := lines.Err(); err != nil {
				return usageError{fmt.Errorf("line %d of the reports: %w", len(reports)+1, err)}
			}
			return c.outcomes(cmd, reports, "import")
		},
	}
}
