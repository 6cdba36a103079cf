package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/jobview"
	"github.com/jobthrottle/jobthrottle/internal/plain"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// limiter is a limiter as --json prints it. Times are in milliseconds. The usage is missing
// where list leaves it out.
type limiter struct {
	Name        string   `json:"name"`
	Rate        string   `json:"rate"`
	Type        string   `json:"type"`
	Permits     int64    `json:"permits"`
	IntervalMS  float64  `json:"interval_ms"`
	GuardMS     float64  `json:"guard_ms"`
	Smooth      bool     `json:"smooth"`
	Window      string   `json:"window"`
	OffsetMS    float64  `json:"offset_ms"`
	KeepAliveMS float64  `json:"keep_alive_ms"`
	PausedMS    float64  `json:"paused_ms"`
	Pinned      bool     `json:"pinned"`
	*Standing            // nil: not read
	Adapts      *Adapts  `json:"adapts,omitempty"` // nil: the limit does not adapt, or this was not read
	Clients     []client `json:"clients,omitempty"`

	Tenants    []jobview.TenantShare `json:"tenants,omitempty"`     // the tenants that have jobs in line: only show reads them
	AllTenants int64                 `json:"all_tenants,omitempty"` // their number, with those that are not listed
	Weights    map[string]float64    `json:"weights,omitempty"`     // those that operators have set

	Error string `json:"error,omitempty"` // why it is broken; then only its name is known

	rate   throttle.Rate
	paused time.Duration
	err    error // why it is broken
}

// Standing is the usage of a limiter by the fleet.
type Standing struct {
	Used       int64   `json:"used"`
	Reserved   int64   `json:"reserved"`
	Available  int64   `json:"available"`
	NextFreeMS float64 `json:"next_free_ms"`
	Parked     int64   `json:"parked"` // tasks in line
	Called     int64   `json:"called"` // tasks called from the line, on their way
}

// client is the usage of one client of a per_client limiter.
type client struct {
	ID         string  `json:"id"`
	Used       int64   `json:"used"`
	Reserved   int64   `json:"reserved"`
	Available  int64   `json:"available"`
	NextFreeMS float64 `json:"next_free_ms"`
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func fromMS(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// fromListed makes a limiter whose usage was not read.
func fromListed(l operate.Listed) limiter {
	if l.Err != nil {
		return broken(l.Name, l.Err)
	}
	r := l.Rate
	return limiter{
		Name: l.Name, Rate: r.String(), Type: r.Type.String(), Permits: r.Permits, IntervalMS: ms(r.Interval), GuardMS: ms(max(r.Guard, 0)),
		Smooth: r.Smooth, Window: r.Window.String(), OffsetMS: ms(r.Offset), KeepAliveMS: ms(r.KeepAlive),
		PausedMS: ms(l.Paused), Pinned: l.Pinned,
		rate: r, paused: l.Paused,
	}
}

// read reads limiters with their usage, in the order of their names. It leaves out those that
// do not exist. Those that are broken have an error.
func (s *session) read(ctx context.Context, names ...string) ([]limiter, error) {
	usages, err := s.fleet.Inspect(ctx, names...)
	wrong, err := wrongWith(err)
	if err != nil {
		return nil, err
	}
	found := make([]string, len(usages))
	for i, u := range usages {
		found[i] = u.Name
	}
	lines, err := s.parked.LinesOf(ctx, found...)
	if err != nil {
		return nil, err
	}
	limiters := make([]limiter, len(usages))
	for i, u := range usages {
		l := fromListed(operate.Listed{Name: u.Name, Rate: u.Rate, Paused: u.Paused, Pinned: u.Pinned})
		l.Standing = &Standing{u.Used, u.Reserved, u.Available, ms(u.NextFree), lines[i].Parked, lines[i].Called}
		for _, c := range u.PerClient {
			l.Clients = append(l.Clients, client{c.ID, c.Used, c.Reserved, c.Available, ms(c.NextFree)})
		}
		limiters[i] = l
	}
	if len(wrong) > 0 {
		for name, err := range wrong {
			limiters = append(limiters, broken(name, err))
		}
		slices.SortStableFunc(limiters, func(a, b limiter) int {
			return cmp.Compare(slices.Index(names, a.Name), slices.Index(names, b.Name))
		})
	}
	return limiters, nil
}

// one reads a limiter that has to exist.
func (s *session) one(ctx context.Context, name string) (limiter, error) {
	if _, err := s.client.Limiter(name); err != nil {
		return limiter{}, asUsage(err, throttle.ErrInvalidName)
	}
	found, err := s.read(ctx, name)
	if err == nil && len(found) == 0 {
		err = s.missing(ctx, name)
	}
	if err == nil {
		err = found[0].err
	}
	if err != nil {
		return limiter{}, err
	}
	return found[0], nil
}

// settings describes everything that is configured, in one line.
func (l limiter) settings() string {
	parts := []string{l.Rate + " " + l.Type}
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if l.GuardMS == 0 {
		add("no guard")
	} else {
		add("guard %s", human(l.rate.Guard))
	}
	if l.Smooth {
		add("smooth")
	}
	if l.rate.Window == throttle.Calendar {
		add("calendar windows from %s", human(l.rate.Offset))
	}
	if l.rate.KeepAlive > 0 {
		add("kept %s after use", human(l.rate.KeepAlive))
	}
	if state := l.state(); state != "" {
		add("%s", state)
	}
	return strings.Join(parts, ", ")
}

// state says what is unusual about the limiter.
func (l limiter) state() string {
	var states []string
	if l.err != nil {
		states = append(states, "broken: "+why(l.err))
	}
	if l.paused > 0 {
		states = append(states, "paused "+human(l.paused))
	}
	if l.Pinned {
		states = append(states, "pinned")
	}
	if l.Adapts != nil {
		states = append(states, "finds "+l.Adapts.learnt.Known())
	}
	return strings.Join(states, ", ")
}

// idle reports that it is a limit of each worker, and no worker has used it lately.
func (l limiter) idle() bool { return l.rate.Type == throttle.PerClient && len(l.Clients) == 0 }

// usage describes the usage in one line.
func (l limiter) usage() string {
	if l.idle() {
		return "no worker has used it lately"
	}
	return fmt.Sprintf("%d used, %d reserved, %d available", l.Used, l.Reserved, l.Available)
}

// nextFree says when a permit is available.
func (l limiter) nextFree() string { return soon(fromMS(l.NextFreeMS)) }

func soon(d time.Duration) string {
	if d <= 0 {
		return "now"
	}
	return human(d)
}

// human writes a duration for people: three digits at most, no zero units.
func human(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		d = d.Round(time.Microsecond)
	case d < time.Second:
		d = d.Round(time.Millisecond)
	case d < time.Minute:
		d = d.Round(100 * time.Millisecond)
	default:
		d = d.Round(time.Second)
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// printJSON prints one line, which is safe on a terminal.
func printJSON(out io.Writer, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = out.Write(append(plain.JSON(line), '\n'))
	return err
}
