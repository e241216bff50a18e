// Package report puts the report of a generation into files for people: CSV for
// spreadsheets, and one HTML page.
//
// # CSV
//
// One row for each member, with quotes as in RFC 4180. A field that a
// spreadsheet would take for a formula begins with an apostrophe, and control
// and bidirectional characters are written as they are escaped on a terminal.
//
// # HTML
//
// A single file that asks for nothing: no script, no network, styles and plots
// inside, and a content security policy that forbids the rest. Each plot has
// its numbers in a table behind it.
//
// Both are functions of the documents that --json prints.
package report
