// Package record is what the judge writes down for the checker to read: every
// request that arrived, one line each.
package record

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// Arrival is a request that reached the API, and what came of it.
type Arrival struct {
	At     time.Duration // of the machine's monotonic clock: see Now
	Worker string        // the User-Agent it sent
	Job    string
	Ended  time.Duration // when it was answered, or its caller was gone
	Status int           // of the answer; 0: its caller was gone before
}

// Write writes a as one line, whatever its names contain.
func Write(w io.Writer, a Arrival) error {
	_, err := fmt.Fprintf(w, "%d %q %q %d %d\n", a.At, a.Worker, a.Job, a.Ended, a.Status)
	return err
}

// Read returns what a file contains, in the order of the arrivals. Each was written when it ended.
func Read(file string) ([]Arrival, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var arrivals []Arrival
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var a Arrival
		if _, err := fmt.Sscanf(lines.Text(), "%d %q %q %d %d", &a.At, &a.Worker, &a.Job, &a.Ended, &a.Status); err != nil {
			return nil, fmt.Errorf("%s: line %d, %q, is not an arrival: %w", file, len(arrivals)+1, lines.Text(), err)
		}
		arrivals = append(arrivals, a)
	}
	slices.SortStableFunc(arrivals, func(a, b Arrival) int { return cmp.Compare(a.At, b.At) })
	return arrivals, lines.Err()
}
