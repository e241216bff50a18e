// Command vulncheck looks for known vulnerabilities in this module, its
// dependencies and the Go standard library, without asking a web service.
//
// The database is the module golang.org/x/vulndb at the version that
// internal/tools/go.mod pins. It is indexed into a temporary folder, and
// govulncheck reads it from there. So a run depends on the tree alone, and new
// advisories arrive with an update of the pin, in a change of their own.
//
// Every finding counts, whether or not our code calls what is vulnerable:
// which code is reached changes daily, the list of advisories does not. known.txt
// names the advisories that are accepted for now. Any other fails the check, and
// an accepted one that is not found any more is reported, so that its line is
// removed.
//
// The exit status is 0 when nothing new was found, 1 when something was, 2 when
// the check itself could not run.
package main
