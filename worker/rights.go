package worker

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/rights.lua
var rightsLua string

// What the user of a worker has to be allowed in a Redis with ACLs, and no
// more. docs/redis.md has the same lists.
var (
	// limitCommands are those of package throttle.
	limitCommands = strings.Fields(`eval evalsha ping time exists del get mget set setrange decrby hdel hexists hget hmget hset persist
		pexpire pttl zadd zcard zcount zrange zrangebyscore zrem zremrangebyrank zremrangebyscore zrevrange zrevrangebyscore zscore
		publish subscribe`)
	// taskCommands are asynq's, as a server and as a client.
	taskCommands = strings.Fields(`eval evalsha ping subscribe exists expire expireat del get incr set setex sadd hdel hget hmget hset
		lpush lrem rpoplpush rpush zadd zcard zrange zrangebyscore zrem zremrangebyrank zremrangebyscore zscore`)
	// lineCommands are those of the lines of parked tasks.
	lineCommands = strings.Fields(`eval evalsha time del exists hdel hget hgetall hincrby hlen hmget hset pexpire pttl
		zadd zcard zincrby zpopmin zrange zrangebyscore zrem zremrangebyrank zscore`)
	// pageCommands are those of the admin address alone.
	pageCommands = strings.Fields("exec hvals llen lpos lrange memory|usage multi sismember smembers zrank zscan")
)

// taskKeys are asynq's.
const taskKeys = "asynq:*"

// channels are where asynq says that a task is to be cancelled, and package
// throttle that a limiter has changed or got permits back.
var channels = []string{"asynq:cancel", "jobthrottle:changes", "jobthrottle:releases"}

// RightsError says what the user of redis.username would have to be allowed.
type RightsError struct {
	User    string
	Missing []string // as ACL SETUSER takes it: +zadd, ~asynq:*, &asynq:cancel
}

func (e *RightsError) Error() string {
	return fmt.Sprintf("the Redis user %q lacks rights: grant them with ACL SETUSER %s %s", e.User, e.User, strings.Join(e.Missing, " "))
}

// rights returns what the user of a worker needs, as ACL SETUSER takes it.
func (c *Config) rights() []string {
	var rights []string
	for _, pattern := range c.keyPatterns() {
		rights = append(rights, "~"+pattern)
	}
	for _, channel := range channels {
		rights = append(rights, "&"+channel)
	}
	for _, command := range c.commands() {
		rights = append(rights, "+"+command)
	}
	return rights
}

// commands returns what a worker of the configuration runs in Redis.
func (c *Config) commands() []string {
	all := slices.Concat(limitCommands, taskCommands, lineCommands)
	if c.Admin.Addr != "" {
		all = append(all, pageCommands...)
	}
	if c.Redis.WaitReplicas > 0 {
		all = append(all, "wait")
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// keyPatterns returns the keys that a worker of the configuration uses.
func (c *Config) keyPatterns() []string {
	patterns := []string{taskKeys, indexPrefix + "*", oldIndexKey}
	for _, name := range sortedKeys(c.Limits) {
		prefix := name // as package throttle has it: names with a hash tag are their own
		if !strings.Contains(name, "{") {
			prefix = "{" + name + "}"
		}
		if c.Limits[name].Key != "" {
			patterns = append(patterns, name+":*", strings.TrimSuffix(prefix, "}")+":*")
		} else {
			patterns = append(patterns, name, prefix+":*")
		}
	}
	slices.Sort(patterns)
	return slices.Compact(patterns)
}

// checkRights returns a *RightsError if the user of rdb may not do all that a
// worker does. On a Redis older than 7, which cannot tell, it finds nothing.
func (c *Config) checkRights(ctx context.Context, rdb redis.Scripter) error {
	if cluster, ok := rdb.(*redis.ClusterClient); ok { // whose nodes have users of their own
		return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return c.checkRights(ctx, node) })
	}
	commands, patterns := c.commands(), c.keyPatterns()
	args := []any{len(commands)}
	for _, command := range commands {
		args = append(args, command)
	}
	args = append(args, len(channels))
	for _, channel := range channels {
		args = append(args, channel)
	}
	for _, pattern := range patterns {
		args = append(args, pattern) // a pattern matches itself
	}
	missing, err := rdb.Eval(ctx, rightsLua, nil, args...).StringSlice()
	if redis.HasErrorPrefix(err, "NOPERM") {
		missing, err = []string{"eval"}, nil // and perhaps more
	}
	if err != nil || len(missing) == 0 {
		return err
	}
	for i, what := range missing {
		switch {
		case slices.Contains(channels, what):
			missing[i] = "&" + what
		case slices.Contains(patterns, what):
			missing[i] = "~" + what
		default:
			missing[i] = "+" + what
		}
	}
	return &RightsError{User: c.Redis.user(), Missing: missing}
}

// user is who Redis takes the client for.
func (r RedisConfig) user() string {
	if r.Username == "" {
		return "default"
	}
	return r.Username
}
