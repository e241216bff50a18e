// Package docs holds the documents to the code: what is generated from it, and
// what must compile.
package docs
