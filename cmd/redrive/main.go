// Command redrive releases dead-lettered messages under control.
package main

import (
	"os"

	"github.com/redrivehq/redrive/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr)) }
