// Package arch holds no code, only tests: they read every Go file of the tree
// and fail when a package reaches upwards or a rule of the house is broken.
//
// The floors and the few permitted neighbours are the table in floors_test.go;
// a new package is added there, on the lowest floor that still lets it see what
// it needs. The rules on single files are in rules_test.go.
//
// The files are parsed here with go/parser rather than listed by the go
// command: what a child process reads is unknown to the test cache, so such a
// test keeps passing, cached, after the tree has changed under it.
package arch
