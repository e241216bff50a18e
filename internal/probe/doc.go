// Package probe asks other systems over HTTP whether a release may go on: a
// health URL, a PromQL expression, a version, and questions about operations.
//
// # What it never does
//
// It follows no redirect, uses no proxy, sends nothing of a message but what a
// question about operations names, and repeats nothing of an answer: texts say
// what was wrong with it, not what it said.
//
// It connects only to public addresses and to those that the configuration
// allows for that target. The address is checked when the connection is made,
// after the name was resolved, so that a name that changes its mind reaches
// nothing.
package probe
