//go:build unix

package record

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now is the time of the machine's monotonic clock, which all its processes share. So what the
// judge saw can be compared with what was done to the others, even if their clocks were
// changed.
func Now() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // this clock is always there
	return time.Duration(now.Nano())
}
