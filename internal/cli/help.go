package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// exitsOfAll is what every command that says nothing else about them can end
// with.
const exitsOfAll = `Exit codes: 0 done · 1 failed · 2 usage or configuration · 3 refused, and the
message says what has to happen first · 6 integrity · 75 temporary, try again.`

// explainExits says in the help of every verb how it ends. A verb with exit codes
// of its own says so itself.
func explainExits(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		explainExits(sub)
	}
	if cmd.HasSubCommands() {
		return
	}
	if cmd.Long == "" {
		cmd.Long = cmd.Short + "."
	}
	if !strings.Contains(cmd.Long, "Exit") {
		cmd.Long += "\n\n" + exitsOfAll
	}
}
