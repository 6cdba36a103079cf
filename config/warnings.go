package config

import (
	"maps"
	"slices"
)

// Warnings returns what may be a mistake although workers can run with it: the limits that no job
// uses, because somebody may believe that they protect an API. Programs may use them without a job.
func (c *Config) Warnings() []*Error {
	used := c.used()
	var warnings []*Error
	for _, name := range slices.Sorted(maps.Keys(c.Limits)) {
		if used[name] {
			continue
		}
		w := &Error{Key: "limits." + name, Msg: "no job uses this limit: name it in the limits of a job, or remove it, unless a program uses it without a job"}
		if i := slices.IndexFunc(c.warnings, func(had *Error) bool { return had.Key == w.Key }); i >= 0 {
			w.File, w.Line, w.Column = c.warnings[i].File, c.warnings[i].Line, c.warnings[i].Column
		}
		warnings = append(warnings, w)
	}
	return warnings
}

// used are the limits that jobs use.
func (c *Config) used() map[string]bool {
	used := map[string]bool{}
	for _, j := range c.Jobs {
		for _, name := range j.Limits {
			used[name] = true
		}
	}
	return used
}
