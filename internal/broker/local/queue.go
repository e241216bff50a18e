package local

import "container/heap"

// queue is the state of a queue, owned by the loop. Bodies stay in the file.
type queue struct {
	spec      QueueSpec
	number    uint32
	ready     entries
	consumers []*Consumer
	next      int // index of the consumer whose turn it is
	dropped   int // messages that had nowhere to go since the broker was opened
}

// entry is one message of a queue.
type entry struct {
	seq     uint64 // place in the queue
	handed  uint32 // times handed out
	expires int64  // milliseconds since 1970, 0 is never
}

func (e *entry) due(now int64) bool { return e.expires != 0 && e.expires <= now }

func (q *queue) push(e *entry) { heap.Push(&q.ready, e) }

func (q *queue) pop() *entry {
	e, _ := heap.Pop(&q.ready).(*entry)
	return e
}

// head is the next message, nil when none is ready.
func (q *queue) head() *entry {
	if len(q.ready) == 0 {
		return nil
	}
	return q.ready[0]
}

func (q *queue) full() bool { return q.spec.MaxLength > 0 && len(q.ready) >= q.spec.MaxLength }

// free returns the next consumer in turn that may be handed a message, nil
// when none may.
func (q *queue) free() *Consumer {
	for range q.consumers {
		c := q.consumers[q.next%len(q.consumers)]
		q.next++
		if len(c.unsettled) < c.prefetch {
			return c
		}
	}
	return nil
}

// entries is a heap by place, so that a returned message takes its old place.
type entries []*entry

func (h entries) Len() int           { return len(h) }
func (h entries) Less(i, j int) bool { return h[i].seq < h[j].seq }
func (h entries) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push is part of heap.Interface.
func (h *entries) Push(x any) {
	if e, ok := x.(*entry); ok {
		*h = append(*h, e)
	}
}

// Pop is part of heap.Interface.
func (h *entries) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return e
}
