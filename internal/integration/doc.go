// Package integration proves the product from outside: its tests build the
// real program, run it as a child process as operators do, and look at what it
// says, at what it leaves on the disk, and at what the broker then holds.
//
// The tests are the scenarios of the guarantees, one file for each: the main
// job, a second shell, forgeries, every field of an envelope, kills at random
// moments, erasure, tampering, and what operators get wrong. The broker is a
// private RabbitMQ node of package rabbittest, one vhost for each test, or the
// embedded one.
//
// TestScenario tells the nine incidents of docs/operating.md as stories, in the
// files scenario_*_test.go; TestScenarioTurnsRed tells each once more with one
// thing about the product broken, and expects the story to fail for it.
//
// # What every test ends with
//
// A site is one data directory. When its test ends, the program itself has to
// find nothing wrong in it: "ledger verify --replay --payloads", "store check"
// and "store rebuild --check" all exit 0. The password of the broker user, a
// value that occurs nowhere else, must stand in nothing that the program ever
// printed and in no file of the data directory but the one that holds it.
//
// # Rules
//
// Nothing waits for a time to pass: what is awaited is polled until a deadline
// that only ends a hang. Random moments come from a seed, which is printed.
// Only processes that a test has started are ended, by their id.
//
// TestCases tries the public reports of testdata/cases, one subtest for each id.
//
// REDRIVE_TEST_CUTS=N cuts or kills a capture N times where a test does that
// many times, 12 to 25 by default; REDRIVE_TEST_LARGE=N captures N messages of
// 1 MiB under a bound of memory, 250 by default.
//
// REDRIVE_TEST_KEYS=N releases N ordering keys of ten messages, 40 by default.
//
// REDRIVE_TEST_KILLS=N multiplies the kills, 50 by default, by N, and
// REDRIVE_TEST_SEED=N repeats their random moments as far as a process of the
// same speed allows.
package integration
