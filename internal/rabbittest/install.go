package rabbittest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// RootEnv names the environment variable that selects another installation:
// the root folder of a Debian system with rabbitmq-server inside.
const RootEnv = "REDRIVE_RABBITMQ_ROOT"

// VersionEnv names the environment variable that says which version the tests
// are meant to run against, such as "3.10": a node of another one is refused.
const VersionEnv = "REDRIVE_RABBITMQ_VERSION"

// binDir is where Debian's package keeps the scripts that do not insist on a
// particular user, unlike the wrappers in /usr/sbin.
const binDir = "/usr/lib/rabbitmq/bin"

// epmdPath is the Erlang name server, installed beside the Erlang machine.
const epmdPath = "/usr/bin/epmd"

// errNotInstalled tells what to do; a test that needs a broker never skips.
var errNotInstalled = errors.New("rabbitmq-server is not installed; run `make test`, which installs it " +
	"(internal/ci/install-debian), or point " + RootEnv + " at a Debian root that has it")

// install is one RabbitMQ installation.
type install struct {
	root string // "" is this machine's own
}

// findInstall returns the installation that the environment selects.
func findInstall() (install, error) {
	in := install{root: os.Getenv(RootEnv)}
	for _, f := range []string{binDir + "/rabbitmq-server", binDir + "/rabbitmqctl", epmdPath} {
		if _, err := os.Stat(filepath.Join(in.root, f)); err != nil {
			return install{}, fmt.Errorf("%w (missing: %s)", errNotInstalled, filepath.Join(in.root, f))
		}
	}
	return in, nil
}

// inner is the path under which the installation's programs see the node's
// folder dir.
func (in install) inner(dir string) string {
	if in.root == "" {
		return dir
	}
	return "/mnt"
}

// enterRoot mounts what Erlang needs and continues inside the root. It runs
// in a mount namespace of its own. Every step ends in exec, so that the
// process id and its parent-death signal stay with the program.
const enterRoot = `set -e
root=$1 dir=$2
shift 2
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --bind "$dir" "$root/mnt"
exec chroot "$root" "$@"`

// command prepares a program of the installation with exactly the environment
// env. The node's folder is dir.
func (in install) command(dir string, env []string, program string, args ...string) *exec.Cmd {
	var cmd *exec.Cmd
	if in.root == "" {
		cmd = exec.Command(program, args...)
		cmd.SysProcAttr = attributes()
	} else {
		full := append([]string{"-c", enterRoot, "sh", in.root, dir, program}, args...)
		cmd = exec.Command("/bin/sh", full...)
		cmd.SysProcAttr = attributesNewMounts()
	}
	cmd.Env = env
	cmd.Dir = dir
	return cmd
}
