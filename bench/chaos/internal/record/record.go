// Package record is what the judge writes down for the checker to read: every
// request that arrived, one line each.
package record

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"time"
)

// Arrival is a request that reached the API.
type Arrival struct {
	At     time.Duration // of the machine's monotonic clock: see Now
	Worker string        // the User-Agent it sent
	Job    string
}

// Write writes a as one line, whatever its names contain.
func Write(w io.Writer, a Arrival) error {
	_, err := fmt.Fprintf(w, "%d %q %q\n", a.At, a.Worker, a.Job)
	return err
}

// Read returns what a file contains, in the order in which it was written.
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
		if _, err := fmt.Sscanf(lines.Text(), "%d %q %q", &a.At, &a.Worker, &a.Job); err != nil {
			return nil, fmt.Errorf("%s: line %d, %q, is not an arrival: %w", file, len(arrivals)+1, lines.Text(), err)
		}
		arrivals = append(arrivals, a)
	}
	return arrivals, lines.Err()
}
