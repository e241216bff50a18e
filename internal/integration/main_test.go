package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/redrivehq/redrive/internal/cli"
	"github.com/redrivehq/redrive/internal/rabbittest"
)

// The program is built by a child process, which the test cache does not see.
// With this a change of the program changes the test too.
var _ = cli.Main

// program is the path of the program under test.
var program string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "redrive-integration-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program = filepath.Join(dir, "redrive")
	args := append([]string{"build", "-o", program}, buildFlags...)
	cmd := exec.Command("go", append(args, "./cmd/redrive")...)
	cmd.Dir = filepath.Join("..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "integration: build the program: %v\n%s", err, out)
		return 1
	}
	return rabbittest.Main(m)
}
