//go:build race

package integration

// buildFlags make the program under test one with the race detector too.
var buildFlags = []string{"-race"}
