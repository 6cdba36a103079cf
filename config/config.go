// Package config is config.yaml: which Redis, which limits, which jobs they are for, and how a
// process runs those jobs. [Load] reads a file. It refuses mistakes with an [*Error], which names
// their line and column.
package config

import (
	"time"

	"github.com/jobthrottle/jobthrottle/throttle"
)

// Config is the contents of config.yaml, section by section. [Default] returns one to start from.
// [Load] reads a file and validates it. worker.New validates a Config that is built in code, as
// [Config.Validate] does.
type Config struct {
	// Redis is the server that holds the queues and the limits.
	Redis Redis `yaml:"redis"`

	// Limits are the rate limits by name. A job has to use each of them: a limit that no job
	// uses is a mistake, and refused.
	Limits map[string]Limit `yaml:"limits"`

	// Pools are groups of slots. Each is an asynq server of its own with its own queues, so
	// that jobs waiting in one never hold up another. A queue belongs to one pool. Defaults to
	// one pool of 20 slots for the queue "default".
	Pools []Pool `yaml:"pools"`

	// Jobs are the settings of jobs by asynq task type. A pattern that ends in ":" or "*"
	// matches every type with that beginning, and the longest match wins. "*" alone is the
	// default for types that are not listed. A type that matches no pattern is not throttled.
	Jobs map[string]Job `yaml:"jobs"`

	// HTTP is what the built-in job http:request may do.
	HTTP HTTP `yaml:"http"`

	// Admin is the address for health checks, metrics and the dashboard.
	Admin Admin `yaml:"admin"`

	// Log says what is logged, and how.
	Log Log `yaml:"log"`

	// ShutdownTimeout is how long running jobs may take to finish when the worker is told to
	// stop. A job that is not done by then goes back to the head of its queue. At least 1s.
	// Defaults to 8s.
	ShutdownTimeout Duration `yaml:"shutdown_timeout"`

	warnings []*Error        `yaml:"-"` // with their positions in the file that was parsed
	unset    []unsetVariable `yaml:"-"`
}

// Redis says how to reach Redis.
type Redis struct {
	// Addrs are host:port pairs. One is a single server, several are a Redis
	// Cluster, or the sentinels if SentinelMaster is set.
	// Defaults to 127.0.0.1:6379.
	Addrs []string `yaml:"addrs"`
	// Username and Password authenticate; empty means no authentication.
	Username string `yaml:"username"`
	Password string `yaml:"password"`
	// DB is the database number. A cluster has only 0.
	DB int `yaml:"db"`
	// TLS encrypts the connection and checks the server's certificate against
	// the system's authorities.
	TLS bool `yaml:"tls"`
	// TLSCA is a file of certificates, in PEM, that replace the system's authorities.
	TLSCA string `yaml:"tls_ca"`
	// TLSCert and TLSKey are files, in PEM, that identify this client to Redis: it asks for
	// them unless its tls-auth-clients is no.
	TLSCert string `yaml:"tls_cert"`
	TLSKey  string `yaml:"tls_key"`
	// TLSServerName is the name in the server's certificate. Defaults to the host that is
	// dialled, which in a Cluster, or behind sentinels, is often a bare address.
	TLSServerName string `yaml:"tls_server_name"`
	// SentinelMaster is the name of the master that the sentinels in Addrs
	// watch. Empty means no sentinels.
	SentinelMaster string `yaml:"sentinel_master"`
	// SentinelUsername and SentinelPassword authenticate to the sentinels;
	// empty means no authentication.
	SentinelUsername string `yaml:"sentinel_username"`
	SentinelPassword string `yaml:"sentinel_password"`
	// WaitReplicas is how many replicas must have a grant before a job starts on it, so that a
	// grant is not lost when the master dies. While fewer replicas can acknowledge, no job with
	// limits starts. Defaults to 0.
	WaitReplicas int `yaml:"wait_replicas"`
	// PoolSize is the number of connections per node. A worker raises it to the number that its
	// slots need: a permit that waits for a connection goes stale. Zero is go-redis's own
	// default.
	PoolSize int `yaml:"-"`
}

// Limit is a rate limit, like [throttle.Rate], or, with InFlight, a limit of how many jobs run at
// a time, like [throttle.InFlight].
type Limit struct {
	// Rate is PERMITS/INTERVAL, such as 100/1s.
	Rate string `yaml:"rate"`
	// InFlight is how many jobs may run at a time, over all workers, instead of a rate: 1 to
	// 1,000,000. It can be combined only with Key, Lease and DryRun.
	InFlight SlotCount `yaml:"in_flight"`
	// Lease is how long the slot of a worker that died stays taken. Live workers renew their
	// leases. It is 3s to 24h, in whole milliseconds. Defaults to 15s.
	Lease Duration `yaml:"lease"`
	// Type is overall (the fleet shares the permits) or per_client (each worker has that many).
	// Defaults to overall.
	Type string `yaml:"type"`
	// Key makes one limiter per value instead of one for all jobs: payload.PATH is a value in a
	// JSON payload, header.NAME one in the task's headers, queue is the task's queue. Empty
	// means one limiter for all.
	Key string `yaml:"key"`
	// Rates are other rates for some values of Key, as PERMITS/INTERVAL by value. All other
	// settings are those of the limit.
	Rates map[string]string `yaml:"rates"`
	// Share says to which tenant a job belongs, written like a Key, such as payload.tenant.
	// Tenants whose jobs wait take turns, by their weights. Empty means that jobs get permits
	// in the order in which they came.
	Share string `yaml:"share"`
	// Weights are how much tenants get, relative to others: 0.001 to 1,000,000, and fractions are
	// allowed. Tenants that it does not name have DefaultWeight.
	Weights map[string]float64 `yaml:"weights"`
	// DefaultWeight is the weight of all other tenants: 0.001 to 1,000,000. Defaults to 1.
	DefaultWeight *float64 `yaml:"default_weight"`
	// Guard is how long a permit counts beyond its interval: at most the interval, or a quarter of a
	// calendar window. The permit is used in the first half of it. Zero means the default: 1 % of the
	// interval, at least 3ms and at most 50ms, but never more than a quarter of the interval. A
	// negative value means none.
	Guard Duration `yaml:"guard"`
	// Smooth spreads the permits evenly over the interval.
	Smooth bool `yaml:"smooth"`
	// Window is sliding or calendar. Defaults to sliding.
	Window string `yaml:"window"`
	// Offset moves calendar windows from UTC midnight: 0 or more, and less than the interval.
	Offset Duration `yaml:"offset"`
	// KeepAlive removes a limiter that was not used for this long. Zero keeps it; otherwise it is
	// at least the interval. But the limiters of a Key default to an hour, or to twice the
	// interval if that is longer, so that idle values leave nothing behind.
	KeepAlive Duration `yaml:"keep_alive"`
	// Adapt lets the limit find how much its API accepts, starting from Rate. Nil: the limit
	// stays at Rate.
	Adapt *Adapt `yaml:"adapt"`
	// Preset says whose headers the API of an http:request sends: see httplimit.Presets. Empty:
	// the headers that many APIs have.
	Preset string `yaml:"preset"`
	// DryRun tells which jobs would wait for the limit, but lets none wait. Jobs take its
	// permits as long as there are some. It pauses nothing, blocks nothing, and does not change
	// what their other limits do.
	DryRun bool `yaml:"dry_run"`
}

// Pool is a group of slots.
type Pool struct {
	// Name identifies the pool in logs. It is required, and unique.
	Name string `yaml:"name"`
	// Concurrency is the number of slots: handlers that run at a time.
	// It is required, and at most 100,000.
	Concurrency int `yaml:"concurrency"`
	// Queues are the queues and their weights: a queue of weight 6 is polled first six times as
	// often as one of weight 1. A weight is at most 1000. Defaults to {default: 1}.
	Queues map[string]int `yaml:"queues"`
	// Strict serves a queue only while all queues of higher weight are empty.
	Strict bool `yaml:"strict"`
	// MaxWaiting is how many jobs may wait for a permit in the worker at a time, beside those
	// that run: 1 to 400,000. More jobs than that park. Zero means the default: see
	// Config.Waiting.
	MaxWaiting int `yaml:"max_waiting"`
}

// Job is the settings for the jobs of a task type.
type Job struct {
	// Limits are names of Limits. A job starts when all of them have a permit for it at the
	// same time. It takes from all or none.
	Limits []string `yaml:"limits"`
	// Permits is what a job costs of its limits. Defaults to 1 of each.
	Permits Permits `yaml:"permits"`
	// Hold is how long a job may wait in a worker, beside its slots. A job whose permits are
	// due later parks. It is a duration, 0 to never wait, or forever to never park. Defaults
	// to 2s.
	Hold string `yaml:"hold"`
	// MaxInFlight is how many jobs that match this pattern may run at a time in this worker,
	// whatever their limits say. Zero means as many as there are slots.
	MaxInFlight int `yaml:"max_in_flight"`
	// PauseOn429 are the limits that pause when the API says to try later. A
	// limit with a key pauses for the value of that job only. Defaults to the
	// limits with a key if there are any, else to those of type overall; an
	// empty list pauses nothing.
	PauseOn429 []string `yaml:"pause_on_429"`
	// MaxPause is the longest such pause, whatever the API says.
	// Defaults to 15m.
	MaxPause Duration `yaml:"max_pause"`
	// MaxWait is how long the API may tell a job to try later, from the first time on. After
	// that, such an answer is a failure and uses up a retry. Waits for a limit, for a pause or
	// until something is fixed are no failures. Defaults to 24h.
	MaxWait Duration `yaml:"max_wait"`
	// Acquire says who gets the permits. Empty: the job waits for them before its handler runs.
	// handler: the handler calls asynqlimit.Acquire immediately before it uses them.
	Acquire string `yaml:"acquire"`
}

// AcquireByHandler is the [Job.Acquire] of handlers that get the permits themselves.
const AcquireByHandler = "handler"

// HTTP is what http:request jobs may do.
type HTTP struct {
	// AllowHosts are the hosts that may be called, as host or host:port, in ASCII.
	// *.example.com allows every host below example.com. If the list is empty, no host may be
	// called. Addresses that are private, link-local or of this machine are refused unless they
	// are listed here as they are written in the URL.
	AllowHosts []string `yaml:"allow_hosts"`
	// Timeout is how long a request may take, from the permit to the last byte of the answer. A
	// task's own timeout also applies. Defaults to 30s.
	Timeout Duration `yaml:"timeout"`
	// KeepErrorBody puts the first 1 KB of an answer that is no success into the job's error, which
	// asynq keeps, and which logs, traces, commands and the dashboard show. What looks like a secret, and the fields of
	// Admin.Hide, are left out; anything else that the API repeats of the request is not.
	KeepErrorBody bool `yaml:"keep_error_body"`
}

// Admin is the address that serves health checks, metrics and the dashboard.
type Admin struct {
	// Addr is host:port. Empty disables it, which is the default.
	Addr string `yaml:"addr"`
	// Token allows changes. Without a token the address is read-only.
	Token string `yaml:"token"`
	// Hosts are names under which the dashboard shows jobs without the token. They are needed
	// for names that strangers could register, such as ops.example.com. An address, or a name
	// without a dot, need not be listed.
	Hosts []string `yaml:"hosts"`
	// Hide are names of payload fields and headers that the dashboard does not show, in
	// addition to those that it always hides, such as authorization and password.
	Hide []string `yaml:"hide"`
}

// Log says what is logged, and how.
type Log struct {
	// Level is debug, info, warn or error. Defaults to info.
	Level string `yaml:"level"`
	// Format is console or json. Defaults to console.
	Format string `yaml:"format"`
}

// Duration is a [time.Duration] that configuration files write as "2s".
type Duration time.Duration

// String returns the duration as configuration files write it.
func (d Duration) String() string { return time.Duration(d).String() }

const (
	defaultHold     = 2 * time.Second
	defaultMaxPause = 15 * time.Minute
	defaultMaxWait  = 24 * time.Hour
)

// HoldForever is the [Job.HoldTime] of a job that waits in its worker for as long as its timeout allows. It is longer than
// any wait.
const HoldForever = 100 * 365 * 24 * time.Hour

// Default returns the configuration of an empty file: a local Redis, one pool,
// and no limits.
func Default() *Config {
	return &Config{
		Redis:           Redis{Addrs: []string{"127.0.0.1:6379"}},
		Pools:           []Pool{{Name: "default", Concurrency: 20}},
		HTTP:            HTTP{Timeout: Duration(30 * time.Second)},
		Log:             Log{Level: "info", Format: "console"},
		ShutdownTimeout: Duration(8 * time.Second),
	}
}

// ThrottleRate returns the rate of the limit for package throttle. For a limit with a key, it is
// the rate of the values that [Limit.Rates] does not name: see [Limit.ValueRates].
func (l Limit) ThrottleRate() (throttle.Rate, error) {
	r, err := throttle.ParseRate(l.Rate)
	if err != nil {
		return throttle.Rate{}, err
	}
	if l.Type == throttle.PerClient.String() {
		r.Type = throttle.PerClient
	}
	if l.Window == throttle.Calendar.String() {
		r.Window = throttle.Calendar
	}
	r.Guard = time.Duration(l.Guard)
	r.Smooth = l.Smooth
	r.Offset = time.Duration(l.Offset)
	r.KeepAlive = time.Duration(l.KeepAlive)
	if l.Key != "" && r.KeepAlive == 0 {
		r.KeepAlive = max(time.Hour, 2*r.Interval)
	}
	return r, r.Validate()
}

// Waiting returns how many jobs of a pool may wait for a permit in a worker at a time, and how
// many of them may be jobs that were not called from their line: [Pool.MaxWaiting]. Its default
// is four times Concurrency, so that quick handlers find jobs while a burst lasts, and
// Concurrency for jobs that were not called. If there is a limit of each worker, both are half of
// Concurrency: another worker may have permits for what waits in this one.
func (c *Config) Waiting(p Pool) (all, notCalled int) {
	if p.MaxWaiting > 0 {
		return p.MaxWaiting, p.MaxWaiting
	}
	used := c.used()
	for name, l := range c.Limits {
		if l.Type == "per_client" && used[name] {
			half := max(p.Concurrency/2, 1)
			return half, half
		}
	}
	return 4 * p.Concurrency, p.Concurrency
}

// QueueWeights returns the queues of the pool and their weights: [Pool.Queues], or its default.
func (p Pool) QueueWeights() map[string]int {
	if len(p.Queues) == 0 {
		return map[string]int{"default": 1}
	}
	return p.Queues
}

// HoldTime returns how long a job may wait in a worker: [Job.Hold], or its default.
func (j Job) HoldTime() (time.Duration, error) {
	switch j.Hold {
	case "":
		return defaultHold, nil
	case "forever":
		return HoldForever, nil
	}
	return time.ParseDuration(j.Hold)
}

// LongestPause returns the longest pause that an answer of the API may cause: [Job.MaxPause], or
// its default.
func (j Job) LongestPause() time.Duration {
	if j.MaxPause == 0 {
		return defaultMaxPause
	}
	return time.Duration(j.MaxPause)
}

// LongestWait returns how long the API may tell a job to try later: [Job.MaxWait], or its
// default.
func (j Job) LongestWait() time.Duration {
	if j.MaxWait == 0 {
		return defaultMaxWait
	}
	return time.Duration(j.MaxWait)
}
