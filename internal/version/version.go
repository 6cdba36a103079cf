// Package version tells which version of jobthrottle a program has: the only source for
// commands, metrics and what a process reports about itself to the fleet.
package version

import (
	"cmp"
	"runtime/debug"
)

// module is the path under which a program that imports jobthrottle lists it.
const module = "github.com/jobthrottle/jobthrottle"

// unknown is the version of a program for which none was recorded.
const unknown = "(unknown)"

// stamped is set by builds that have no version control to read, such as the
// Dockerfile: -ldflags "-X github.com/jobthrottle/jobthrottle/internal/version.stamped=v1.2.3".
var stamped string

// String returns the version that the build was given, or else the one that the go command
// recorded: v1.2.3 for a release, and for a checkout a pseudo-version that ends in the commit
// (and +dirty if files were changed). It is never empty.
func String() string {
	info, _ := debug.ReadBuildInfo()
	return cmp.Or(stamped, recorded(info), unknown)
}

// recorded returns the version of this module in a program. The program may be a user's that
// only imports the module.
func recorded(info *debug.BuildInfo) string {
	if info == nil {
		return ""
	}
	if info.Main.Path == module {
		return info.Main.Version
	}
	for _, dep := range info.Deps {
		if dep.Path == module {
			if dep.Replace != nil {
				return cmp.Or(dep.Replace.Version, dep.Version) // a directory has no version
			}
			return dep.Version
		}
	}
	return ""
}
