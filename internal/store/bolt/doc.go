// Package bolt keeps the store in one bbolt file of a private directory.
//
//	DIR          0700
//	DIR/LOCK     who holds the store: pid, command, since when
//	DIR/store.db everything but large bodies
//	DIR/blobs/   bodies that are too large for the file, one each, sealed
//	DIR/reserve  space that is given up when a stop must still be written
//
// A store is created under another name, synced and renamed, so that a crash
// leaves either no store or a whole one. Its format has a version; a newer one
// is refused. There is one writer: the lock file names it to the second.
//
// Readers see only what has been fsynced: a read transaction does not begin
// while a commit is under way, because the memory map would show pages that
// are not yet durable.
package bolt
