package rabbittest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are drawn below the range from which the kernel serves outgoing
// connections, so that no client takes one between the draw and its use.
const (
	lowestPort  = 20000
	highestPort = 31999
)

// freePorts draws n different ports that nobody listens on at 127.0.0.1. Another
// process may still take one before it is used; the caller then draws again.
func freePorts(n int) ([]int, error) {
	var held []net.Listener
	defer func() {
		for _, l := range held {
			_ = l.Close()
		}
	}()
	var ports []int
	for range 1000 {
		p := lowestPort + rand.IntN(highestPort-lowestPort+1)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(p)))
		if err != nil {
			continue
		}
		held = append(held, l)
		if ports = append(ports, p); len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("no %d free ports between %d and %d", n, lowestPort, highestPort)
}
