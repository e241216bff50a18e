package app

import "golang.org/x/sys/unix"

// HideMemory keeps the memory of this process, in which keys and passwords are,
// out of core files, and out of reach of other processes of the same user. It
// is the first thing that the program does.
func HideMemory() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }
