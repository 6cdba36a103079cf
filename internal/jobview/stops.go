package jobview

import (
	"encoding/base64"
	"encoding/json"

	"github.com/jobthrottle/jobthrottle/internal/line"
)

// stop is a shelf to read, in the order of the list.
type stop struct {
	Queue string     `json:"q"`
	Shelf line.Shelf `json:"s"`
}

// cursor is where a list goes on.
type cursor struct {
	Stop stop       `json:"at"`
	Last line.Entry `json:"last"`
	// Began is when the first page was read, in seconds after 1970, for work on all jobs of a
	// list.
	Began int64 `json:"began,omitempty"`
}

func (p cursor) String() string {
	text, _ := json.Marshal(p) // texts and a number
	return base64.RawURLEncoding.EncodeToString(text)
}

func parseCursor(text string) (p cursor, err error) {
	decoded, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(decoded, &p)
	}
	if err != nil {
		return cursor{}, ErrBadCursor
	}
	return p, nil
}

// stopsOf returns what to read for a query.
func stopsOf(queues []string, q JobQuery) []stop {
	var stops []stop
	for _, queue := range queues {
		if q.Queue != "" && q.Queue != queue {
			continue
		}
		shelves := []line.Shelf{line.Retrying, line.Room, line.Pending, line.Archived}
		if q.works {
			shelves[3] = line.Oldest
		}
		switch {
		case q.Limit != "" && q.value && (q.State == "" || q.State == Waiting):
			shelves = []line.Shelf{line.ShelfOf(q.Limit), line.ShelfOf(line.InFlight + q.Limit), line.Room, line.Pending}
		case q.Limit != "" && (q.State == "" || q.State == Waiting):
			shelves = []line.Shelf{line.ShelfOf(q.Limit), line.ShelfOf(line.InFlight + q.Limit), line.Retrying, line.Room, line.Pending}
		case q.Limit != "":
			shelves = nil // neither failed nor archived jobs wait for a limit
		case q.State == Waiting:
			shelves = shelves[:3]
		case q.State == Failed:
			shelves = shelves[:1]
		case q.State == Archived:
			shelves = shelves[3:]
		case q.not == Waiting:
			shelves = []line.Shelf{line.Retrying, shelves[3]}
		}
		for _, s := range shelves {
			stops = append(stops, stop{queue, s})
		}
	}
	return stops
}
