package config

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/jobthrottle/jobthrottle/internal/expr"
	"github.com/jobthrottle/jobthrottle/internal/hosts"
	"github.com/jobthrottle/jobthrottle/internal/limitname"
	"github.com/jobthrottle/jobthrottle/internal/similar"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// Validate returns an [*Error] for the first thing with which no worker can run, in the order of
// the file's sections.
func (c *Config) Validate() error {
	for _, check := range []func() error{c.checkRedis, c.checkLimits, c.checkNames, c.checkPools, c.checkJobs, c.checkRest} {
		if err := check(); err != nil {
			return err
		}
	}
	if c.Redis.cluster() {
		return c.ValidateCluster()
	}
	return nil
}

// ValidateCluster returns an [*Error] for the first job whose permits, or whose slots of limits in flight, do not
// all lie in one slot of a Redis Cluster: one script takes them. [Config.Validate] calls it last, if redis.addrs
// lists several nodes; package asynqlimit calls it if its client is one of a Cluster.
func (c *Config) ValidateCluster() error {
	for _, pattern := range slices.Sorted(maps.Keys(c.Jobs)) {
		first := map[bool]string{} // by whether it is in flight
		for i, name := range c.Jobs[pattern].Limits {
			l := c.Limits[name]
			if l.DryRun {
				continue
			}
			one, there := first[l.IsInFlight()]
			if !there {
				first[l.IsInFlight()] = name
			} else if limitname.HashTag(name) != limitname.HashTag(one) {
				return invalid(fmt.Sprintf("jobs.%s.limits[%d]", pattern, i),
					"%q and %q lie in different slots of the Redis Cluster: give the limits of a job a common hash tag, such as {api}:%s and {api}:%s", one, name, one, name)
			}
		}
	}
	return nil
}

func invalid(key, format string, args ...any) error {
	return &Error{Key: key, Msg: fmt.Sprintf(format, args...)}
}

// cluster reports whether the configured Redis is a Cluster, whose scripts need all their keys
// in one slot.
func (r Redis) cluster() bool { return len(r.Addrs) > 1 && r.SentinelMaster == "" }

func (c *Config) checkRedis() error {
	if len(c.Redis.Addrs) == 0 {
		return invalid("redis.addrs", "no address: want at least one, such as 127.0.0.1:6379")
	}
	for i, addr := range c.Redis.Addrs {
		if strings.ContainsAny(addr, "@/?") { // it may contain a password, which no error shows
			return invalid(fmt.Sprintf("redis.addrs[%d]", i), "invalid address: want HOST:PORT, such as 127.0.0.1:6379, and a password in redis.password")
		}
		if !isAddress(addr, 1) {
			return invalid(fmt.Sprintf("redis.addrs[%d]", i), "invalid address %q: want HOST:PORT, such as 127.0.0.1:6379", addr)
		}
	}
	switch {
	case c.Redis.DB < 0:
		return invalid("redis.db", "invalid number %d: want 0 or more", c.Redis.DB)
	case c.Redis.DB > 0 && c.Redis.cluster():
		return invalid("redis.db", "invalid number %d: a Redis Cluster has only database 0", c.Redis.DB)
	case c.Redis.WaitReplicas < 0:
		return invalid("redis.wait_replicas", "invalid number %d: want 0 (do not wait) or more", c.Redis.WaitReplicas)
	case c.Redis.SentinelMaster == "" && c.Redis.SentinelUsername+c.Redis.SentinelPassword != "":
		return invalid("redis.sentinel_master", "missing: a user or password of sentinels needs it")
	}
	_, err := c.Redis.tlsConfig()
	return err
}

func (c *Config) checkLimits() error {
	for _, name := range slices.Sorted(maps.Keys(c.Limits)) {
		l, key := c.Limits[name], "limits."+name
		if err := limitname.Check(name); err != nil {
			return invalid(key, "%v", err)
		}
		if err := l.checkInFlight(key); err != nil {
			return err
		}
		if l.Key != "" {
			if _, err := expr.ParseSelector(l.Key); err != nil {
				return invalid(key+".key", "%v", err)
			}
		}
		if l.IsInFlight() {
			continue
		}
		if l.Rate == "" {
			return invalid(key+".rate", "missing: want PERMITS/INTERVAL, such as 100/1s")
		}
		if !slices.Contains([]string{"", "overall", "per_client"}, l.Type) {
			return invalid(key+".type", "invalid type %q: want overall or per_client", l.Type)
		}
		if !slices.Contains([]string{"", "sliding", "calendar"}, l.Window) {
			return invalid(key+".window", "invalid window %q: want sliding or calendar", l.Window)
		}
		if _, err := throttle.ParseRate(l.Rate); err != nil {
			return invalid(key+".rate", "%s", bare(err))
		}
		if _, err := l.ThrottleRate(); err != nil {
			return invalid(key, "%s", bare(err))
		}
		if err := l.checkRates(key+".rates", name); err != nil {
			return err
		}
		if err := l.checkShare(key, name); err != nil {
			return err
		}
		if err := l.checkAdapt(key); err != nil {
			return err
		}
	}
	return nil
}

// bare removes the prefix that errors of package throttle share, where the key already says it.
func bare(err error) string {
	msg := strings.TrimPrefix(err.Error(), throttle.ErrInvalidRate.Error()+": ")
	if strings.HasPrefix(msg, `"`) {
		return throttle.ErrInvalidRate.Error() + " " + msg
	}
	return msg
}

const (
	// maxConcurrency is far more than one process can run. go-redis reserves memory for a
	// connection of each slot.
	maxConcurrency = 100_000
	// maxWaiting is the default for a pool of maxConcurrency.
	maxWaiting = 4 * maxConcurrency
	// maxWeight is more than a queue needs to come first. asynq keeps a list with one entry for
	// each unit of weight, and shuffles it for each job.
	maxWeight = 1000
)

func (c *Config) checkPools() error {
	if len(c.Pools) == 0 {
		return invalid("pools", "no pool: want at least one")
	}
	names, queues := map[string]bool{}, map[string]string{}
	for i, p := range c.Pools {
		key := fmt.Sprintf("pools[%d]", i)
		switch {
		case p.Name == "":
			return invalid(key+".name", "missing: want a name")
		case names[p.Name]:
			return invalid(key+".name", "a second pool named %q", p.Name)
		case !isTidy(p.Name):
			return invalid(key+".name", "invalid name %q: want one %s", p.Name, tidy)
		case p.Concurrency == 0:
			return invalid(key+".concurrency", "invalid number 0, or missing: want 1 to %d slots", maxConcurrency)
		case p.Concurrency < 1 || p.Concurrency > maxConcurrency:
			return invalid(key+".concurrency", "invalid number %d: want 1 to %d slots", p.Concurrency, maxConcurrency)
		case p.MaxWaiting < 0 || p.MaxWaiting > maxWaiting:
			return invalid(key+".max_waiting", "invalid number %d: want 1 to %d jobs", p.MaxWaiting, maxWaiting)
		}
		names[p.Name] = true
		for _, queue := range slices.Sorted(maps.Keys(p.QueueWeights())) {
			qkey := key + ".queues." + queue
			switch {
			case queue == "" || strings.ContainsAny(queue, "{}") || !isTidy(queue):
				return invalid(qkey, "invalid queue name: want one without braces or control characters, and no blanks around it")
			case p.QueueWeights()[queue] < 1 || p.QueueWeights()[queue] > maxWeight:
				return invalid(qkey, "invalid weight %d: want 1 to %d", p.QueueWeights()[queue], maxWeight)
			case queues[queue] != "":
				return invalid(qkey, "the queue belongs to pool %q already: want it in one pool", queues[queue])
			}
			queues[queue] = p.Name
		}
	}
	return nil
}

// OtherJobs is what metrics and Stats call the jobs that no pattern matches. No job of the configuration has this name.
const OtherJobs = "(other)"

func (c *Config) checkJobs() error {
	patterns := map[expr.Pattern]string{}
	for _, name := range slices.Sorted(maps.Keys(c.Jobs)) {
		j, key := c.Jobs[name], "jobs."+name
		if strings.TrimSpace(name) == "" {
			return invalid("jobs", "an empty task type: want a type, or * for all")
		}
		if name == OtherJobs {
			return invalid(key, "the metrics of jobs that no pattern matches have this name: want another")
		}
		if other, dup := patterns[expr.ParsePattern(name)]; dup {
			return invalid(key, "matches the same types as %q", other)
		}
		patterns[expr.ParsePattern(name)] = name
		if err := c.checkJobLimits(key, j); err != nil {
			return err
		}
		hold, err := j.HoldTime()
		if err != nil || hold < 0 {
			return invalid(key+".hold", "invalid hold %q: want a duration such as 2s, 0 or forever", j.Hold)
		}
		for _, limit := range j.Limits {
			if j.Hold == "forever" && c.Limits[limit].Share != "" {
				return invalid(key+".hold", "forever keeps jobs in their processes, where the tenants of limit %q cannot take turns: want a duration such as 2s", limit)
			}
		}
		if j.MaxInFlight < 0 {
			return invalid(key+".max_in_flight", "invalid number %d: want 0 (no cap) or more", j.MaxInFlight)
		}
		if j.MaxPause < 0 {
			return invalid(key+".max_pause", "invalid duration %v: want more than 0", j.MaxPause)
		}
		if j.MaxWait < 0 {
			return invalid(key+".max_wait", "invalid duration %v: want more than 0", j.MaxWait)
		}
		if j.Acquire != "" && j.Acquire != AcquireByHandler {
			return invalid(key+".acquire", "invalid value %q: want handler, or leave it out", j.Acquire)
		}
	}
	return nil
}

// noLimit says that the configuration does not have a limit that a job names.
func (c *Config) noLimit(name string) string {
	there := slices.Sorted(maps.Keys(c.Limits))
	if len(there) == 0 {
		return fmt.Sprintf("no limit is named %q: the configuration has no limits", name)
	}
	hint := similar.Hint(name, there)
	return fmt.Sprintf("no limit is named %q%s%swant one of limits (%s)", name, hint, separator(hint), strings.Join(there, ", "))
}

func (c *Config) checkJobLimits(key string, j Job) error {
	adapts, preset := "", ""
	for i, name := range j.Limits {
		lkey := fmt.Sprintf("%s.limits[%d]", key, i)
		if _, ok := c.Limits[name]; !ok {
			return invalid(lkey, "%s", c.noLimit(name))
		}
		if slices.Contains(j.Limits[:i], name) {
			return invalid(lkey, "%q is there twice", name)
		}
		if of := c.Limits[name].Preset; of != "" {
			if preset != "" && c.Limits[preset].Preset != of {
				return invalid(lkey, "the preset of %q is %s, and that of %q is %s: a job calls one API, so leave out one of them", name, of, preset, c.Limits[preset].Preset)
			}
			preset = name
		}
		if c.Limits[name].Adapt != nil {
			if adapts != "" {
				return invalid(lkey, "%q adapts, and so does %q: when the API refuses, nobody knows whose limit it was; give one of them a fixed rate", name, adapts)
			}
			adapts = name
		}
	}
	for i, name := range j.PauseOn429 {
		if !slices.Contains(j.Limits, name) {
			return invalid(fmt.Sprintf("%s.pause_on_429[%d]", key, i), "%q is not a limit of this job: want some of %s", name, strings.Join(j.Limits, ", "))
		}
		if c.Limits[name].IsInFlight() {
			return invalid(fmt.Sprintf("%s.pause_on_429[%d]", key, i), "%q is a limit in flight, which cannot pause: want a rate", name)
		}
	}
	return c.checkPermits(key+".permits", j)
}

func (c *Config) checkRest() error {
	for i, host := range c.HTTP.AllowHosts {
		if _, err := hosts.ParseRule(host); err != nil {
			return invalid(fmt.Sprintf("http.allow_hosts[%d]", i), "%v", err)
		}
	}
	switch {
	case c.HTTP.Timeout <= 0:
		return invalid("http.timeout", "invalid duration %v: want more than 0", c.HTTP.Timeout)
	case !slices.Contains([]string{"debug", "info", "warn", "error"}, c.Log.Level):
		return invalid("log.level", "invalid level %q: want debug, info, warn or error", c.Log.Level)
	case !slices.Contains([]string{"console", "json"}, c.Log.Format):
		return invalid("log.format", "invalid format %q: want console or json", c.Log.Format)
	case c.ShutdownTimeout < Duration(time.Second):
		return invalid("shutdown_timeout", "invalid duration %v: want 1s or more", c.ShutdownTimeout)
	}
	if c.Admin.Addr != "" && !isAddress(c.Admin.Addr, 0) { // port 0 means any free port
		return invalid("admin.addr", "invalid address %q: want HOST:PORT, such as 127.0.0.1:9464", c.Admin.Addr)
	}
	for i, host := range c.Admin.Hosts {
		if host == "" || strings.ContainsAny(host, "/:*@ ") || !isTidy(host) {
			return invalid(fmt.Sprintf("admin.hosts[%d]", i), "invalid name %q: want a name without a port, such as ops.example.com", host)
		}
	}
	switch {
	case !isTidy(c.Admin.Token): // no HTTP client could send it
		return invalid("admin.token", "invalid token: want one %s", tidy)
	case strings.ContainsFunc(c.Admin.Token, func(r rune) bool { return r > unicode.MaxASCII }): // browsers send it as Latin-1, or not at all
		return invalid("admin.token", "invalid token: want ASCII characters only")
	}
	return nil
}

// isAddress reports whether s is HOST:PORT, with a port from lowest on.
func isAddress(s string, lowest uint64) bool {
	host, port, err := net.SplitHostPort(s)
	if err != nil || strings.ContainsFunc(host, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n >= lowest
}

// tidy says what isTidy requires.
const tidy = "without control characters, and no blanks around it"

func isTidy(s string) bool {
	return strings.TrimSpace(s) == s && !strings.ContainsFunc(s, unicode.IsControl)
}
