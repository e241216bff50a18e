// Package app wires a program together: it is the only place that names
// drivers. A Session is one command's way to whoever holds the store: a
// process behind the control socket, or this process itself.
package app
