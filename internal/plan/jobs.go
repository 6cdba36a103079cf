package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/expr"
	"github.com/jobthrottle/jobthrottle/internal/limitname"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// Jobs is what a configuration says about jobs and their limits. It does not
// change, and is safe for concurrent use.
type Jobs struct {
	jobs   []*Job
	limits []*Limit
	slots  []*SlotLimit
}

// Job is the settings for the tasks of a pattern.
type Job struct {
	Name        string       // the pattern, as configured
	Limits      []*Limit     // a task draws on all of them
	Slots       []*SlotLimit // it holds a slot of each of these while it runs
	Hold        time.Duration
	MaxInFlight int // 0: no cap
	MaxPause    time.Duration
	MaxWait     time.Duration // how long its API may tell a task to try later
	Acquires    bool          // its handler gets the permits itself

	pattern expr.Pattern
	costs   costs
	pauses  []bool // for each of Limits: Draw.Pauses
}

// Limit is a limit of the configuration: one limiter, or one for each value of its
// key.
type Limit struct {
	Name string
	Rate throttle.Rate
	Dry  bool   // it only tells which tasks would wait
	Key  string // where a task has the value; empty if there is one limiter for all

	Share string // where a task has its tenant; empty if tenants do not share it

	Adapt  throttle.Adapt // zero: it does not adapt
	Preset string         // whose headers its API sends

	key   expr.Selector // Key
	share expr.Selector // Share
	limit config.Limit
	rates map[string]throttle.Rate // of limiters whose values have rates of their own
}

// New returns what a configuration says. It returns no error for a valid configuration.
func New(cfg *config.Config) (*Jobs, error) {
	js := &Jobs{}
	limits := make(map[string]*Limit, len(cfg.Limits))
	for _, name := range slices.Sorted(maps.Keys(cfg.Limits)) {
		if cfg.Limits[name].IsInFlight() {
			l, err := newSlotLimit(name, cfg.Limits[name])
			if err != nil {
				return nil, fmt.Errorf("limit %q: %w", name, err)
			}
			js.slots = append(js.slots, l)
			continue
		}
		l, err := newLimit(name, cfg.Limits[name])
		if err != nil {
			return nil, fmt.Errorf("limit %q: %w", name, err)
		}
		limits[name] = l
		js.limits = append(js.limits, l)
	}
	for name, jc := range cfg.Jobs {
		j, err := newJob(name, jc, limits, js.slots)
		if err != nil {
			return nil, fmt.Errorf("job %q: %w", name, err)
		}
		js.jobs = append(js.jobs, j)
	}
	slices.SortFunc(js.jobs, func(a, b *Job) int { return a.pattern.Compare(b.pattern) })
	return js, nil
}

func newLimit(name string, lc config.Limit) (l *Limit, err error) {
	l = &Limit{Name: name, Key: lc.Key, Share: lc.Share, Dry: lc.DryRun, Adapt: lc.ThrottleAdapt(), Preset: lc.Preset, limit: lc}
	if l.Rate, err = lc.ThrottleRate(); err != nil {
		return nil, err
	}
	if l.Share != "" {
		if l.share, err = expr.ParseSelector(l.Share); err != nil {
			return nil, err
		}
	}
	if l.Key == "" {
		return l, nil
	}
	if l.key, err = expr.ParseSelector(l.Key); err != nil {
		return nil, err
	}
	values, err := lc.ValueRates()
	if err != nil {
		return nil, err
	}
	l.rates = make(map[string]throttle.Rate, len(values))
	for value, rate := range values {
		limiter, err := limitname.OfValue(name, value)
		if err != nil {
			return nil, err
		}
		l.rates[limiter] = rate
	}
	return l, nil
}

// RateOf returns the rate that the configuration has for one of the limit's limiters: the rate
// of its value, or the common one.
func (l *Limit) RateOf(limiter string) throttle.Rate {
	if rate, own := l.rates[limiter]; own {
		return rate
	}
	return l.Rate
}

// WeightOf returns the weight that the configuration gives a tenant.
func (l *Limit) WeightOf(tenant string) float64 { return l.limit.WeightOf(tenant) }

// Rates returns the rates of limiters whose values have rates of their own.
func (l *Limit) Rates() map[string]throttle.Rate { return maps.Clone(l.rates) }

func newJob(name string, jc config.Job, limits map[string]*Limit, slots []*SlotLimit) (j *Job, err error) {
	j = &Job{Name: name, MaxInFlight: jc.MaxInFlight, MaxPause: jc.LongestPause(), MaxWait: jc.LongestWait(),
		Acquires: jc.Acquire == config.AcquireByHandler, pattern: expr.ParsePattern(name)}
	j.Slots, jc.Limits = splitSlots(jc.Limits, slots)
	if j.costs, err = newCosts(jc); err != nil {
		return nil, err
	}
	if j.Hold, err = jc.HoldTime(); err != nil {
		return nil, err
	}
	for _, name := range jc.Limits {
		l, ok := limits[name]
		if !ok {
			return nil, fmt.Errorf("no limit is named %q", name)
		}
		j.Limits = append(j.Limits, l)
	}
	j.pauses = pauses(j.Limits, jc.PauseOn429)
	return j, nil
}

// pauses returns which limits of a job pause when the API says to try later: the narrowest that
// fit, so that one account does not stop the others. A limit with dry_run never pauses.
func pauses(limits []*Limit, names []string) []bool {
	var keyed, overall, named []bool
	for _, l := range limits {
		keyed = append(keyed, l.Key != "" && !l.Dry)
		overall = append(overall, l.Rate.Type == throttle.Overall && !l.Dry)
		named = append(named, slices.Contains(names, l.Name) && !l.Dry)
	}
	switch {
	case names != nil:
		return named
	case slices.Contains(keyed, true):
		return keyed
	}
	return overall
}

// Type returns the only task type that the pattern matches, or false if it is the beginning of
// several types.
func (j *Job) Type() (string, bool) { return j.pattern.Type() }

// CostsByLimit reports whether its tasks may cost different numbers of different limits.
func (j *Job) CostsByLimit() bool {
	return slices.ContainsFunc(j.costs.own, func(own *expr.Cost) bool { return own != nil })
}

// All returns the jobs. The pattern that wins comes first.
func (js *Jobs) All() []*Job { return js.jobs }

// Limits returns the limits by name.
func (js *Jobs) Limits() []*Limit { return js.limits }

// For returns the settings of a task type, or nil.
func (js *Jobs) For(taskType string) *Job {
	for _, j := range js.jobs {
		if j.pattern.Matches(taskType) {
			return j
		}
	}
	return nil
}

// Fields returns the fields of payloads that keys and costs read.
func (js *Jobs) Fields() []string {
	var fields []string
	add := func(field string) {
		if field != "" && !slices.Contains(fields, field) {
			fields = append(fields, field)
		}
	}
	for _, l := range js.limits {
		add(l.key.Field())
		add(l.share.Field())
	}
	for _, l := range js.slots {
		add(l.key.Field())
	}
	for _, j := range slices.SortedFunc(slices.Values(js.jobs), func(a, b *Job) int { return strings.Compare(a.Name, b.Name) }) {
		for _, field := range j.costs.fields() {
			add(field)
		}
	}
	return fields
}

// dryRun is what people are told of a limit with dry_run.
const dryRun = " (dry run)"

// String describes the limit for people.
func (l *Limit) String() string {
	s := l.Name + " " + l.Rate.String()
	if l.Rate.Type == throttle.PerClient {
		s += " per worker"
	}
	if l.Key != "" {
		s += " per " + l.Key
	}
	if l.Share != "" {
		s += " shared by " + l.Share
	}
	if l.Adapt != (throttle.Adapt{}) {
		s += fmt.Sprintf(" adapts between %d and %d", l.Adapt.Min, l.Adapt.Max)
	}
	if l.Dry {
		s += dryRun
	}
	return s
}
