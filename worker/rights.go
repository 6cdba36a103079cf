package worker

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/history"
	"github.com/jobthrottle/jobthrottle/internal/presence"
)

//go:embed lua/rights.lua
var rightsLua string

// The least rights that the user of a worker needs in a Redis with ACLs. docs/redis.md has the
// same lists.
var (
	// limitCommands are those of package throttle.
	limitCommands = strings.Fields(`eval evalsha ping time exists del get mget set setrange decrby hdel hexists hget hmget hset persist
		pexpire pttl zadd zcard zcount zrange zrangebyscore zrem zremrangebyrank zremrangebyscore zrevrange zrevrangebyscore zscore
		publish subscribe`)
	// taskCommands are asynq's, as a server and as a client.
	taskCommands = strings.Fields(`eval evalsha ping subscribe exists expire expireat del get incr set setex sadd hdel hget hmget hset
		lpush lrem rpoplpush rpush zadd zcard zrange zrangebyscore zrem zremrangebyrank zremrangebyscore zscore`)
	// lineCommands are those of the lines of parked tasks.
	lineCommands = strings.Fields(`eval evalsha time del exists get hdel hexists hget hgetall hincrby hkeys hlen hmget hset lpush lrange lrem
		pexpire pttl rpop rpush sadd sismember srem zadd zcard zrange zrangebyscore zrem zremrangebyrank zremrangebyscore zscore`)
	// pageCommands are those that only the admin address needs, and lrange: without it, backlogs park
	// more slowly.
	pageCommands = strings.Fields("exec hvals llen lpos lrange memory|usage multi setnx smembers zrank zscan")
)

// taskKeys are asynq's.
const taskKeys = "asynq:*"

// channels are where asynq says that a task is to be cancelled, and where package throttle says
// that a limiter has changed or got permits back.
var channels = []string{"asynq:cancel", "jobthrottle:changes", "jobthrottle:releases"}

// slotChannels are where a process is told that it has got a slot of a limit in flight.
const slotChannels = "jobthrottle:slots:*"

// forPeople reports whether a right, as in RightsError.Missing, is only for what pages and
// commands show. A worker runs its jobs without it: in a rolling deployment the user may have
// the rights of the previous version.
func forPeople(right string) bool {
	key, isKey := strings.CutPrefix(right, "~")
	if isKey {
		return slices.Contains(presence.Keys(), key) || slices.Contains(history.Keys(), key)
	}
	return slices.Contains(pageCommands, strings.TrimPrefix(right, "+"))
}

// channelsOf returns the channels that a worker of the configuration uses.
func channelsOf(cfg *config.Config) []string {
	for _, l := range cfg.Limits {
		if l.IsInFlight() {
			return append(slices.Clone(channels), slotChannels)
		}
	}
	return channels
}

// RightsError says which rights the user of redis.username lacks.
type RightsError struct {
	User    string
	Missing []string // as for ACL SETUSER: +zadd, ~asynq:*, &asynq:cancel
}

// Error names the user, and says which ACL SETUSER grants what is missing.
func (e *RightsError) Error() string {
	return fmt.Sprintf("the Redis user %q lacks rights: grant them with ACL SETUSER %s %s", e.User, e.User, strings.Join(e.Missing, " "))
}

// rights returns what the user of a worker needs, as for ACL SETUSER.
func rights(cfg *config.Config) []string {
	var rules []string
	for _, pattern := range keyPatterns(cfg) {
		rules = append(rules, "~"+pattern)
	}
	for _, channel := range channelsOf(cfg) {
		rules = append(rules, "&"+channel)
	}
	for _, command := range commands(cfg) {
		rules = append(rules, "+"+command)
	}
	return rules
}

// commands returns the commands that a worker of the configuration uses.
func commands(cfg *config.Config) []string {
	all := slices.Concat(limitCommands, taskCommands, lineCommands)
	if cfg.Admin.Addr != "" {
		all = append(all, pageCommands...)
	}
	if cfg.Redis.WaitReplicas > 0 {
		all = append(all, "wait")
	}
	for _, l := range cfg.Limits {
		if l.Share != "" {
			all = append(all, "zmscore")
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// keyPatterns returns the keys that a worker of the configuration uses.
func keyPatterns(cfg *config.Config) []string {
	patterns := append(slices.Concat(presence.Keys(), history.Keys()), taskKeys, "{jobthrottle:parked}:*")
	for _, name := range sortedKeys(cfg.Limits) {
		prefix := name // as in package throttle: names with a hash tag are unchanged
		if !strings.Contains(name, "{") {
			prefix = "{" + name + "}"
		}
		if cfg.Limits[name].Key != "" {
			patterns = append(patterns, name+":*", strings.TrimSuffix(prefix, "}")+":*")
		} else {
			patterns = append(patterns, name, prefix+":*")
		}
	}
	slices.Sort(patterns)
	return slices.Compact(patterns)
}

// checkRights returns a *RightsError if the user of rdb lacks a right that the jobs of a worker
// need. If only rights for people are missing, it calls warn. On a Redis older than 7, which
// cannot tell, it finds nothing.
func checkRights(ctx context.Context, cfg *config.Config, rdb redis.Scripter, warn func(*RightsError)) error {
	if cluster, ok := rdb.(*redis.ClusterClient); ok { // its nodes have users of their own
		var once sync.Once // nodes are asked at the same time
		first := func(e *RightsError) { once.Do(func() { warn(e) }) }
		return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return checkRights(ctx, cfg, node, first) })
	}
	needed, patterns, channels := commands(cfg), keyPatterns(cfg), channelsOf(cfg)
	args := []any{len(needed)}
	for _, command := range needed {
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
	e := &RightsError{User: userOf(cfg.Redis), Missing: missing}
	if slices.ContainsFunc(missing, func(right string) bool { return !forPeople(right) }) {
		return e
	}
	if ctx.Err() == nil { // else nobody waits for it any more
		warn(e)
	}
	return nil
}

// userOf is the user name that Redis sees.
func userOf(r config.Redis) string {
	if r.Username == "" {
		return "default"
	}
	return r.Username
}
