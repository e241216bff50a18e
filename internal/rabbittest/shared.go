package rabbittest

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
)

// shared is the node that the tests of one binary share. It is started by the
// first test that asks and stopped by Main.
var shared struct {
	once   sync.Once
	inMain atomic.Bool
	dir    string
	node   *Node
	err    error
}

// Shared returns the node that all tests of this binary share, starting it on
// first use. The binary must have a TestMain that calls Main.
func Shared(t testing.TB) *Node {
	t.Helper()
	if !shared.inMain.Load() {
		t.Fatal("rabbittest: Shared needs a TestMain that calls rabbittest.Main, which stops the node")
	}
	shared.once.Do(func() {
		if shared.dir, shared.err = os.MkdirTemp("", "rabbittest"); shared.err == nil {
			shared.node, shared.err = start(shared.dir)
		}
	})
	if shared.err != nil {
		t.Fatalf("rabbittest: %v", shared.err)
	}
	return shared.node
}

// Main runs the tests of m, then stops the shared node. It returns the exit
// code for os.Exit:
//
//	func TestMain(m *testing.M) { os.Exit(rabbittest.Main(m)) }
func Main(m *testing.M) int {
	shared.inMain.Store(true)
	code := m.Run()
	if err := stopShared(); err != nil {
		fmt.Fprintln(os.Stderr, "rabbittest:", err)
		if code == 0 {
			code = 1
		}
	}
	return code
}

// stopShared ends the shared node, if there is one, and removes its folder.
func stopShared() error {
	var err error
	if shared.node != nil {
		err = shared.node.stop()
	}
	if shared.dir != "" {
		err = errors.Join(err, os.RemoveAll(shared.dir))
	}
	return err
}
