// Command matrix runs the tests that need a RabbitMQ against several versions
// of it, side by side, and prints a line for each case and version and a
// table of the pitfalls that a release has to pass.
//
//	matrix -must testdata/mustpass.txt 3.10= 4.0=/path/of/a/root
//
// An argument is VERSION=ROOT: the folder with that version's installation, or
// nothing for the one of this machine. The tests themselves refuse a broker of
// another version (REDRIVE_RABBITMQ_VERSION), so that no label is a guess.
//
// It fails when a test failed, when a listed test did not run, and when a run
// reports no case at all.
package main

import "os"

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}
