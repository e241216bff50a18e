package rabbittest

// Option changes how a node is started.
type Option func(*options)

type options struct {
	config  string
	plugins []string
	mgmt    bool
}

// WithConfig adds lines to the node's rabbitmq.conf, such as
// "consumer_timeout = 60000".
func WithConfig(lines string) Option {
	return func(o *options) { o.config += lines + "\n" }
}

// WithPlugins enables plugins by name. By default there are none, because each
// of them slows the start.
func WithPlugins(names ...string) Option {
	return func(o *options) { o.plugins = append(o.plugins, names...) }
}

// WithManagement enables the management plugin; Node.ManagementURL says where.
func WithManagement() Option {
	return func(o *options) {
		o.mgmt = true
		o.plugins = append(o.plugins, "rabbitmq_management")
	}
}
