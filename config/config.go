// Package config is config.yaml: which Redis, which limits, which jobs they are
// for, and how a process runs those jobs. Load reads a file and refuses what is
// wrong in it, with its line and column.
package config

import (
	"time"

	"github.com/jobthrottle/jobthrottle/throttle"
)

// Config is what config.yaml says, section by section. Default returns one to
// start from; Load reads a file and validates it. worker.New validates a Config
// that is built in code.
type Config struct {
	// Redis is the server that holds the queues and the limits.
	Redis Redis `yaml:"redis"`

	// Limits are the rate limits by name. Each has to be used by a job: a
	// limit that nothing draws on is a mistake, and refused.
	Limits map[string]Limit `yaml:"limits"`

	// Pools are groups of slots, each an asynq server of its own with its own
	// queues, so that jobs waiting in one never hold up another. A queue
	// belongs to one pool. Defaults to one pool of 20 slots for the queue
	// "default".
	Pools []Pool `yaml:"pools"`

	// Jobs are the limits of jobs by asynq task type. A pattern that ends in
	// ":" or "*" matches every type that begins like it, the longest match
	// wins, and "*" alone is the default of types that are not listed. A type
	// that nothing matches is not throttled.
	Jobs map[string]Job `yaml:"jobs"`

	// HTTP is what the built-in job http:request may do.
	HTTP HTTP `yaml:"http"`

	// Admin is the address for health checks, metrics and the dashboard.
	Admin Admin `yaml:"admin"`

	// Log says what is logged, and how.
	Log Log `yaml:"log"`

	// ShutdownTimeout is how long running jobs may take to finish when the
	// worker is told to stop. What is not done by then goes back to the head of
	// its queue. Defaults to 8s.
	ShutdownTimeout Duration `yaml:"shutdown_timeout"`
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
	// TLSCA is a file of certificates, in PEM, that take the place of the
	// system's authorities.
	TLSCA string `yaml:"tls_ca"`
	// TLSCert and TLSKey are files, in PEM, by which Redis knows this client:
	// it asks for them unless its tls-auth-clients is no.
	TLSCert string `yaml:"tls_cert"`
	TLSKey  string `yaml:"tls_key"`
	// TLSServerName is the name that the server's certificate has. Defaults
	// to the host that is dialled, which in a Cluster, or behind sentinels, is
	// often a bare address.
	TLSServerName string `yaml:"tls_server_name"`
	// SentinelMaster is the name of the master that the sentinels in Addrs
	// watch. Empty means no sentinels.
	SentinelMaster string `yaml:"sentinel_master"`
	// SentinelUsername and SentinelPassword authenticate to the sentinels;
	// empty means no authentication.
	SentinelUsername string `yaml:"sentinel_username"`
	SentinelPassword string `yaml:"sentinel_password"`
	// WaitReplicas is how many replicas have to have a grant before a job
	// starts on it, so that the death of the master takes no grant with it.
	// While fewer can acknowledge, no job with limits starts. Defaults to 0.
	WaitReplicas int `yaml:"wait_replicas"`
	// PoolSize is the number of connections per node. A worker raises it to
	// what its slots need: a permit that waits for a connection goes stale.
	// Zero is go-redis's own default.
	PoolSize int `yaml:"-"`
}

// Limit is a rate limit, as throttle.Rate has it, or, with InFlight, a limit of how
// many jobs run at a time.
type Limit struct {
	// Rate is PERMITS/INTERVAL, such as 100/1s.
	Rate string `yaml:"rate"`
	// InFlight is how many jobs may run at a time, over all workers, in place of a
	// rate. Of the other fields it goes with Key and Lease.
	InFlight SlotCount `yaml:"in_flight"`
	// Lease is for how long the slot of a worker that died stays taken. Workers that
	// live renew theirs. Defaults to 15s; 3s is the minimum.
	Lease Duration `yaml:"lease"`
	// Type is overall (the fleet shares the permits) or per_client (each
	// worker has them). Defaults to overall.
	Type string `yaml:"type"`
	// Key makes one limiter per value instead of one for all: payload.PATH
	// picks the value out of a JSON payload, header.NAME out of the task's
	// headers, queue is the task's queue. Empty means one for all.
	Key string `yaml:"key"`
	// Rates are other rates for some values of Key, as PERMITS/INTERVAL by value.
	// Everything else is the limit's.
	Rates map[string]string `yaml:"rates"`
	// Share says whose job it is, as Key says its value: payload.tenant, say. Tenants
	// whose jobs wait get permits in turns, by their weights. Empty means that jobs
	// get them in the order in which they came.
	Share string `yaml:"share"`
	// Weights are how much tenants get beside others. Those it does not name have
	// DefaultWeight.
	Weights map[string]float64 `yaml:"weights"`
	// DefaultWeight defaults to 1.
	DefaultWeight *float64 `yaml:"default_weight"`
	// Guard is how late a permit may be used. Zero is throttle's default,
	// negative means none.
	Guard Duration `yaml:"guard"`
	// Smooth spreads the permits evenly over the interval.
	Smooth bool `yaml:"smooth"`
	// Window is sliding or calendar. Defaults to sliding.
	Window string `yaml:"window"`
	// Offset moves calendar windows from UTC midnight.
	Offset Duration `yaml:"offset"`
	// KeepAlive removes a limiter that is not used for so long. Zero keeps
	// it, except that the limiters of a Key default to an hour, or to twice the
	// interval if that is longer: idle values leave nothing behind.
	KeepAlive Duration `yaml:"keep_alive"`
	// Adapt lets the limit find what its API bears, from Rate on. Nil: it stays what
	// Rate says.
	Adapt *Adapt `yaml:"adapt"`
	// Preset is whose headers the API of an http:request sends: see
	// httplimit.Presets. Empty: those that many have.
	Preset string `yaml:"preset"`
	// DryRun tells which jobs would wait for the limit, and has none wait. They
	// take its permits as long as there are some. It pauses nothing, blocks nothing,
	// and changes nothing of what their other limits do.
	DryRun bool `yaml:"dry_run"`
}

// Adapt is between which permits a limit may find its own, per interval of its rate.
type Adapt struct {
	// Min is at least 1.
	Min int64 `yaml:"min"`
	// Max is what the limit never exceeds, whatever the API says.
	Max int64 `yaml:"max"`
}

// ThrottleAdapt returns how the limit adapts as package throttle has it: the zero value if
// it does not.
func (l Limit) ThrottleAdapt() throttle.Adapt {
	if l.Adapt == nil {
		return throttle.Adapt{}
	}
	return throttle.Adapt{Min: l.Adapt.Min, Max: l.Adapt.Max}
}

// Pool is a group of slots.
type Pool struct {
	// Name tells pools apart in logs. It is required, and unique.
	Name string `yaml:"name"`
	// Concurrency is the number of slots: handlers that run at a time.
	// It is required, and at most 100,000.
	Concurrency int `yaml:"concurrency"`
	// Queues are the queues and their weights: a queue of weight 6 is asked
	// first six times as often as one of weight 1. A weight is at most 1000.
	// Defaults to {default: 1}.
	Queues map[string]int `yaml:"queues"`
	// Strict serves a queue only while all queues of higher weight are empty.
	Strict bool `yaml:"strict"`
	// MaxWaiting is how many jobs may wait for a permit in the worker at a time,
	// beside those that run. Jobs beyond it park.
	// Defaults to half of Concurrency, at least 1.
	MaxWaiting int `yaml:"max_waiting"`
}

// Job is what applies to the jobs of a task type.
type Job struct {
	// Limits are names of Limits. A job starts when all of them have a permit
	// for it at the same time, and takes from all or none.
	Limits []string `yaml:"limits"`
	// Permits is what a job costs of its limits. Defaults to 1 of each.
	Permits Permits `yaml:"permits"`
	// Hold is how long a job may wait in a worker, beside its slots; one whose turn
	// comes later parks. A duration, 0 to never wait, or
	// forever to never park. Forever needs a pool all of whose slots may wait
	// (max_waiting equal to concurrency). Defaults to 2s.
	Hold string `yaml:"hold"`
	// MaxInFlight is how many jobs that match this pattern run at a time in
	// this worker, whatever their limits say. Zero means as many as there are slots.
	MaxInFlight int `yaml:"max_in_flight"`
	// PauseOn429 are the limits that pause when the API says to try later. A
	// limit with a key pauses for the value of that job only. Defaults to the
	// limits with a key if there are any, else to those of type overall; an
	// empty list pauses nothing.
	PauseOn429 []string `yaml:"pause_on_429"`
	// MaxPause is the longest such pause, whatever the API says.
	// Defaults to 15m.
	MaxPause Duration `yaml:"max_pause"`
	// MaxWait is for how long the API may tell a job to try later, from the first
	// time on. After that, such an answer is a failure, and the job's retries
	// count. Waits for a limit, a pause or something to be mended do not.
	// Defaults to 24h.
	MaxWait Duration `yaml:"max_wait"`
	// Acquire says who gets the permits: empty, the job waits for them before its
	// handler runs; handler, its handler calls asynqlimit.Acquire immediately
	// before it uses them.
	Acquire string `yaml:"acquire"`
}

// AcquireByHandler is Job.Acquire for handlers that get the permits themselves.
const AcquireByHandler = "handler"

// HTTP is what http:request jobs may do.
type HTTP struct {
	// AllowHosts are the hosts that may be called, as host or host:port, in ASCII;
	// *.example.com allows every host below example.com. Without any, no host
	// may be called. Addresses that are private, link-local or of this machine
	// are refused unless listed here as they stand in the URL.
	AllowHosts []string `yaml:"allow_hosts"`
	// Timeout bounds a request, from the permit to the last byte of the
	// answer; a task's own timeout bounds it as well. Defaults to 30s.
	Timeout Duration `yaml:"timeout"`
}

// Admin is the address that serves health checks, metrics and the dashboard.
type Admin struct {
	// Addr is host:port. Empty turns it off, which is the default.
	Addr string `yaml:"addr"`
	// Token allows changes. Without a token the address only reads.
	Token string `yaml:"token"`
	// Hosts are names under which the dashboard shows jobs without the token: those that
	// strangers could register, such as ops.example.com. An address, and a name without a
	// dot, need not be among them.
	Hosts []string `yaml:"hosts"`
	// Hide are names of payload fields and headers that the dashboard does not show,
	// beside those that it hides by itself, such as authorization and password.
	Hide []string `yaml:"hide"`
}

// Log says what is logged, and how.
type Log struct {
	// Level is debug, info, warn or error. Defaults to info.
	Level string `yaml:"level"`
	// Format is console or json. Defaults to console.
	Format string `yaml:"format"`
}

// Duration is a time.Duration that configuration files write as "2s".
type Duration time.Duration

// String returns the duration as configuration files write it.
func (d Duration) String() string { return time.Duration(d).String() }

const (
	defaultHold     = 2 * time.Second
	defaultMaxPause = 15 * time.Minute
	defaultMaxWait  = 24 * time.Hour
)

// HoldForever is the hold of a job that never parks. It is longer than any wait:
// the limits never send such a job away.
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

// ThrottleRate returns the limit as package throttle has it: of a limit with a key,
// the rate of the values that Rates does not name.
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

// WaitingSlots returns how many jobs of the pool may wait for a permit at a time:
// MaxWaiting, or its default.
func (p Pool) WaitingSlots() int {
	if p.MaxWaiting == 0 {
		return max(p.Concurrency/2, 1)
	}
	return p.MaxWaiting
}

// QueueWeights returns the queues of the pool and their weights: Queues, or its
// default.
func (p Pool) QueueWeights() map[string]int {
	if len(p.Queues) == 0 {
		return map[string]int{"default": 1}
	}
	return p.Queues
}

// HoldTime returns how long a job may wait in a worker: Hold, or its default.
func (j Job) HoldTime() (time.Duration, error) {
	switch j.Hold {
	case "":
		return defaultHold, nil
	case "forever":
		return HoldForever, nil
	}
	return time.ParseDuration(j.Hold)
}

// LongestPause returns the longest pause that an answer of the API may cause:
// MaxPause, or its default.
func (j Job) LongestPause() time.Duration {
	if j.MaxPause == 0 {
		return defaultMaxPause
	}
	return time.Duration(j.MaxPause)
}

// LongestWait returns for how long the API may tell a job to try later: MaxWait,
// or its default.
func (j Job) LongestWait() time.Duration {
	if j.MaxWait == 0 {
		return defaultMaxWait
	}
	return time.Duration(j.MaxWait)
}
