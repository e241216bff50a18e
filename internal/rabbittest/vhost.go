package rabbittest

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// vhostBatch is how many vhosts one rabbitmqctl call makes. A call costs a
// second or two whatever it does, a vhost some ten milliseconds.
const vhostBatch = 16

// vhostPool holds vhosts that nobody uses yet.
type vhostPool struct {
	mu   sync.Mutex
	made int
	free []string
}

// VHost gives t a vhost that no other test uses and returns its AMQP address.
// The vhost stays until the node ends.
func (n *Node) VHost(t testing.TB) string {
	t.Helper()
	n.vhosts.mu.Lock()
	defer n.vhosts.mu.Unlock()
	if len(n.vhosts.free) == 0 {
		if err := n.makeVHosts(); err != nil {
			t.Fatalf("rabbittest: %v", err)
		}
	}
	name := n.vhosts.free[0]
	n.vhosts.free = n.vhosts.free[1:]
	return n.url(name)
}

// makeVHosts creates a batch of vhosts in one call. The caller holds the
// pool's mutex.
func (n *Node) makeVHosts() error {
	names := make([]string, vhostBatch)
	quoted := make([]string, vhostBatch)
	for i := range names {
		n.vhosts.made++
		names[i] = "t" + strconv.Itoa(n.vhosts.made)
		quoted[i] = `<<"` + names[i] + `">>`
	}
	expr := fmt.Sprintf(`lists:foreach(fun(V) ->
		ok = rabbit_vhost:add(V, <<"%[1]s">>),
		ok = rabbit_auth_backend_internal:set_permissions(<<"%[1]s">>, V, <<".*">>, <<".*">>, <<".*">>, <<"%[1]s">>)
	end, [%[2]s]).`, user, strings.Join(quoted, ","))
	out, err := n.TryCtl("eval", expr)
	if err != nil {
		return err
	}
	if strings.TrimSpace(out) != "ok" {
		return fmt.Errorf("making vhosts: %s", out)
	}
	n.vhosts.free = append(n.vhosts.free, names...)
	return nil
}
