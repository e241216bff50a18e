// Package brokertest is the conformance suite of the broker ports,
// quarantine.Source, quarantine.Layout and redrive.Releaser. There is about one subtest for each
// sentence of their contracts. A driver runs it in one line:
//
//	func TestConformance(t *testing.T) { brokertest.Run(t, harness(t)) }
//
// The Harness tells the suite how to prepare a broker and look at it past the
// driver. What a broker cannot do is a field left nil; the subtests that need
// it are then not part of the suite for that driver.
//
// Every subtest opens sources and releasers of its own, closes them, and fails
// when they leave a goroutine behind. Run it with -race: some subtests use a
// driver from many goroutines at once.
package brokertest
