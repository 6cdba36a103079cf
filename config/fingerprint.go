package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
)

// Fingerprint is a short text. It is the same for configurations that say the same about jobs:
// limits, jobs and http. Where a process runs, which queues it serves, and how many jobs it
// runs at a time may differ.
func (c *Config) Fingerprint() string {
	hosts := slices.Sorted(slices.Values(c.HTTP.AllowHosts))
	said, err := json.Marshal(map[string]any{"limits": c.Limits, "jobs": c.Jobs, "hosts": hosts, "timeout": c.HTTP.Timeout})
	if err != nil {
		return "" // plain values: there is no error
	}
	var value any
	if err := json.Unmarshal(said, &value); err != nil {
		return ""
	}
	// Zero values do not count. So versions with other keys agree about a file that uses none
	// of these keys. An empty list counts: pause_on_429 may be one.
	said, err = json.Marshal(withoutZeros(value))
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(said)
	return hex.EncodeToString(sum[:6])
}

// withoutZeros removes fields that are empty.
func withoutZeros(value any) any {
	fields, ok := value.(map[string]any)
	if !ok {
		return value
	}
	kept := map[string]any{}
	for name, v := range fields {
		switch v := withoutZeros(v).(type) {
		case nil:
		case map[string]any:
			if len(v) > 0 {
				kept[name] = v
			}
		default:
			if v != "" && v != 0.0 && v != false {
				kept[name] = v
			}
		}
	}
	return kept
}
