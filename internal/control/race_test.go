//go:build race

package control_test

// raceEnabled tells that everything takes its time.
const raceEnabled = true
