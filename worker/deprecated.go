package worker

import "github.com/jobthrottle/jobthrottle/config"

// Config is [config.Config].
//
// Deprecated: use [config.Config].
type Config = config.Config

// LimitConfig is [config.Limit].
//
// Deprecated: use [config.Limit].
type LimitConfig = config.Limit

// JobConfig is [config.Job].
//
// Deprecated: use [config.Job].
type JobConfig = config.Job

// DefaultConfig is [config.Default].
//
// Deprecated: use [config.Default].
func DefaultConfig() *config.Config { return config.Default() }

// LoadConfig is [config.Load].
//
// Deprecated: use [config.Load].
func LoadConfig(path string) (*config.Config, error) { return config.Load(path) }
