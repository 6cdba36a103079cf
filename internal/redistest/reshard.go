package redistest

import "time"

// Reshard moves the slot of a key to another master and returns that master. It works like
// redis-cli --cluster reshard: a few keys at a time, while clients go on. The pause before the
// last step is how long both masters have a part of the slot.
func (c *Cluster) Reshard(key string, pause time.Duration) *Server {
	c.tb.Helper()
	slot, source := c.Slot(key), c.Master(key)
	var target *Server
	for _, node := range c.masters() {
		if node != source {
			target = node
		}
	}
	from := c.clients[source]
	setSlot := func(node *Server, args ...any) {
		c.tb.Helper()
		c.must(c.clients[node].Do(c.ctx(), append([]any{"cluster", "setslot", slot}, args...)...).Err())
	}
	setSlot(target, "importing", c.id(source))
	setSlot(source, "migrating", c.id(target))
	host, port := target.HostPort()
	for {
		keys, err := from.ClusterGetKeysInSlot(c.ctx(), slot, 1).Result()
		c.must(err)
		if len(keys) == 0 {
			break
		}
		c.must(from.Migrate(c.ctx(), host, port, keys[0], 0, time.Second).Err())
	}
	<-time.After(pause)
	setSlot(target, "node", c.id(target))
	setSlot(source, "node", c.id(target))
	for _, node := range c.masters() {
		setSlot(node, "node", c.id(target))
	}
	return target
}

// masters returns the nodes that are masters now.
func (c *Cluster) masters() []*Server {
	c.tb.Helper()
	var masters []*Server
	for _, node := range c.Nodes {
		if node.cmd == nil {
			continue
		}
		role, err := c.clients[node].Do(c.ctx(), "role").Slice()
		c.must(err)
		if role[0] == "master" {
			masters = append(masters, node)
		}
	}
	return masters
}
