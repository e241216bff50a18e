package api

import (
	"encoding/json"
	"time"
)

// TailRequest asks for records from a position on.
type TailRequest struct {
	From       uint64 `json:"from,omitempty"` // default: the last 20
	Limit      int    `json:"limit,omitempty"`
	Generation string `json:"generation,omitempty"`
}

// TailPage holds records as they stand in the ledger.
type TailPage struct {
	Records []json.RawMessage `json:"records"`
	Next    uint64            `json:"next"` // position to continue from
}

// VerifyRequest asks for a verification of the held store.
type VerifyRequest struct {
	Pub      string `json:"pub,omitempty"` // trusted verifier key
	Replay   bool   `json:"replay,omitempty"`
	Payloads bool   `json:"payloads,omitempty"`
}

// VerifyResult is the report of a verification.
type VerifyResult struct {
	ExitCode    int      `json:"exit_code"`
	Verdict     string   `json:"verdict"`
	Records     uint64   `json:"records"`
	Root        string   `json:"root"`
	Checkpoints string   `json:"checkpoints"` // matched/total
	Mismatches  []string `json:"mismatches"`
	Incomplete  []string `json:"incomplete"`
	Warnings    []string `json:"warnings"`
	Checked     []string `json:"checked"`
}

// ExportRequest asks for a bundle in a directory that does not exist yet.
type ExportRequest struct {
	Dir        string     `json:"dir"`
	Generation string     `json:"generation,omitempty"`
	From       *time.Time `json:"from,omitempty"`
	To         *time.Time `json:"to,omitempty"`
	As         string     `json:"as,omitempty"`
}

// ExportResult says what was exported.
type ExportResult struct {
	Dir     string `json:"dir"`
	Records uint64 `json:"records"`
	Size    uint64 `json:"size"`
}

// CheckpointInfo is the newest checkpoint.
type CheckpointInfo struct {
	Size   uint64 `json:"size"`
	Signed string `json:"signed"`
}

// StoreReport is the result of a check of the store.
type StoreReport struct {
	OK        bool     `json:"ok"`
	Records   uint64   `json:"records"`
	Envelopes uint64   `json:"envelopes"`
	Problems  []string `json:"problems"`
}

// RebuildRequest asks to derive all state from the ledger again.
type RebuildRequest struct {
	Check bool `json:"check"` // compare only
}

// RebuildReport lists what differed.
type RebuildReport struct {
	OK          bool     `json:"ok"`
	Records     uint64   `json:"records"`
	Differences []string `json:"differences"`
	Digest      string   `json:"digest"`
}
