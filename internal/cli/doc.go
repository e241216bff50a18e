// Package cli is the command line: nouns, then verbs, one file for each noun.
//
// Every command asks one operation of package api and prints its answer: as a
// table for people, or with --json as one document (NDJSON for streams).
// Untrusted text goes through package safetext. Exit codes are in exit.go.
package cli
