// Package control holds the use cases: what operators, auditors and automation
// can do, each over the ledger and the broker ports, whoever asks.
//
// # Reading the source
//
//	control.go     the Controller and its operations by name
//	capture.go     deliver → batch in one transaction → settle
//	drive.go       one release from start to end, and who stays with it
//	runner.go      T1, the gate, publish, T2
//	plan.go        from a selection to a frozen cohort
//	vet.go         what a member must fulfil now; preflight.go what its destination must
//	signals.go     probes of a running release, and what follows from them
//	reconcile.go   a generation against business data
//	report.go      what became of it; history.go how it went
//	repair.go      candidates beside originals
//	generations.go acts of people on generations
//	envelopes.go   acts of people on envelopes
//	books.go       ledger and store
//
// Decisions are made in packages quarantine and redrive, inside transactions.
// Here is what takes time: waiting, publishing, sealing, and looking at clocks.
package control
