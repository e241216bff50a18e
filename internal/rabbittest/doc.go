// Package rabbittest gives tests a private RabbitMQ node.
//
// A node is a child process of the test binary. It has its own name server,
// its own free ports on 127.0.0.1 and its own data folder, so it neither sees
// nor disturbs a RabbitMQ that already runs on the machine, and two test
// binaries can run side by side. It works as root and as an ordinary user.
//
//	func TestMain(m *testing.M) { os.Exit(rabbittest.Main(m)) }
//
//	func TestSomething(t *testing.T) {
//		node := rabbittest.Shared(t) // one node per test binary
//		url := node.VHost(t)         // a fresh vhost for this test
//		…
//	}
//
// A test that kills, pauses or reconfigures the broker takes a node of its own
// with Start, because the shared one serves the other tests too.
//
// # No process stays behind
//
// The node and its name server are stopped by their own process ids when the
// test ends. Should the test binary die before that (a time-out, a crash, a
// kill), the kernel kills both: each child is started with a parent-death
// signal from a thread that lives as long as the child. The helper processes
// of the Erlang machine end when their machine does.
//
// # Which RabbitMQ
//
// By default the one that the package rabbitmq-server installs. With the
// environment variable REDRIVE_RABBITMQ_ROOT naming a folder that holds
// another Debian system (made by debootstrap, with rabbitmq-server inside),
// the node runs in there; that needs root, for chroot and for a mount
// namespace of its own that vanishes with the process. REDRIVE_RABBITMQ_VERSION
// makes every node of another version a failure.
package rabbittest
