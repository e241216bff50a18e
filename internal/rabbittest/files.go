package rabbittest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// writeFiles lays out the node's folder: configuration, cookie, data, logs.
func (n *Node) writeFiles() error {
	for _, d := range []string{"data", "log", "conf.d"} {
		if err := os.MkdirAll(filepath.Join(n.dir, d), 0o700); err != nil {
			return err
		}
	}
	conf := fmt.Sprintf("listeners.tcp.1 = 127.0.0.1:%d\ncluster_name = %s\nlog.file.level = info\n", n.amqpPort, n.name)
	if n.opts.mgmt {
		conf += fmt.Sprintf("management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = %d\n", n.mgmtPort)
	}
	files := map[string]string{
		"rabbitmq.conf":   conf + n.opts.config,
		"enabled_plugins": "[" + strings.Join(n.opts.plugins, ",") + "].\n",
		// The cookie lets rabbitmqctl in and keeps every other node out.
		".erlang.cookie": fmt.Sprintf("%016X%016X", rand.Uint64(), rand.Uint64()),
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(n.dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// env is the whole environment of the node's programs: nothing is inherited,
// so that settings of a system-wide RabbitMQ have no effect here.
func (n *Node) env() []string {
	dir := n.in.inner(n.dir)
	loopback := "-kernel inet_dist_use_interface {127,0,0,1}"
	return []string{
		"HOME=" + dir,
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin",
		"LANG=C.UTF-8",
		"LC_ALL=C.UTF-8",
		// The start script then replaces itself by the Erlang machine instead
		// of staying as its parent: one process, one id, signals arrive.
		"RUNNING_UNDER_SYSTEMD=true",
		"ERL_EPMD_ADDRESS=127.0.0.1",
		"ERL_EPMD_PORT=" + strconv.Itoa(n.epmdPort),
		"RABBITMQ_NODENAME=" + n.name,
		"RABBITMQ_USE_LONGNAME=false",
		"RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
		"RABBITMQ_NODE_PORT=" + strconv.Itoa(n.amqpPort),
		"RABBITMQ_DIST_PORT=" + strconv.Itoa(n.distPort),
		"RABBITMQ_BASE=" + dir,
		"RABBITMQ_MNESIA_BASE=" + dir + "/data",
		"RABBITMQ_LOG_BASE=" + dir + "/log",
		"RABBITMQ_CONF_ENV_FILE=/dev/null",
		"RABBITMQ_CONFIG_FILE=" + dir + "/rabbitmq.conf",
		"RABBITMQ_ADVANCED_CONFIG_FILE=" + dir + "/advanced.config",
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + dir + "/enabled_plugins",
		"RABBITMQ_PID_FILE=" + dir + "/pid",
		"RABBITMQ_GENERATED_CONFIG_DIR=" + dir + "/conf.d",
		"RABBITMQ_FEATURE_FLAGS_FILE=" + dir + "/feature_flags",
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=" + loopback + " +S 2:2",
		"RABBITMQ_CTL_ERL_ARGS=" + loopback + " +S 1:1",
		// Wide enough for every rabbitmqctl that runs on the machine at once.
		"RABBITMQ_CTL_DIST_PORT_MIN=35672",
		"RABBITMQ_CTL_DIST_PORT_MAX=36672",
	}
}

// lastWords returns the end of the node's output, for an error message.
func (n *Node) lastWords() string {
	const most = 2000
	var out strings.Builder
	logs, _ := filepath.Glob(filepath.Join(n.dir, "log", "*.log"))
	for _, f := range append([]string{filepath.Join(n.dir, "console")}, logs...) {
		raw, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		if len(raw) > most {
			raw = raw[len(raw)-most:]
		}
		fmt.Fprintf(&out, "--- end of %s\n%s\n", filepath.Base(f), raw)
	}
	return out.String()
}
