package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/internal/jobview"
	"github.com/jobthrottle/jobthrottle/internal/plan"
	"github.com/jobthrottle/jobthrottle/internal/presence"
	"github.com/jobthrottle/jobthrottle/internal/similar"
	"github.com/jobthrottle/jobthrottle/producer"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
	"github.com/jobthrottle/jobthrottle/worker"
)

// problem is why a job would not run.
type problem struct {
	Reason string `json:"reason"` // in one word; the same as in explain, where explain has one
	Text   string `json:"text"`   // what is wrong, and how to correct it
}

// checker tells whether jobs would run.
type checker struct {
	redis  cli.Redis
	config *config.Config
	plans  *plan.Jobs
	http   *worker.HTTPCheck
	queues map[string]bool // that some pool of the configuration serves
	asked  bool            // whether Redis answers, also about limits
	unread error           // why it does not answer about limits
	fleet  []jobview.Worker
	served map[string]int // by queue: servers of asynq that run and serve it, those of workers among them

	permits  map[string]int64 // of limiters in Redis; 0 if the limiter does not exist
	ids      map[string]int   // lines, by queue and id
	unserved map[string]int   // jobs by queue that the configuration serves, and nobody who runs now
	unsure   map[string]int   // jobs by type for which nobody knows whether there is a handler
}

func newChecker(opened cli.Redis) (*checker, error) {
	c := &checker{redis: opened, config: opened.Config, queues: map[string]bool{}, permits: map[string]int64{}, ids: map[string]int{}, unsure: map[string]int{}, unserved: map[string]int{}}
	for _, p := range c.config.Pools {
		for queue := range p.QueueWeights() {
			c.queues[queue] = true
		}
	}
	var err error
	if c.plans, err = plan.New(c.config); err != nil {
		return nil, err
	}
	c.http, err = worker.NewHTTPCheck(c.config)
	return c, err
}

// ask reads what Redis knows about the fleet. It returns what it could not read, to warn of.
func (c *checker) ask(ctx context.Context) (unknown []error) {
	if err := c.redis.Ping(ctx); err != nil {
		return []error{fmt.Errorf("checked by the configuration alone: %w", err)}
	}
	c.asked = true
	inspector := jobview.NewInspector(c.redis.Client)
	var err error
	if c.served, err = inspector.Servers(ctx); err != nil {
		unknown = append(unknown, fmt.Errorf("which queues are served is not known: %w", err))
	}
	if c.fleet, err = inspector.Workers(ctx); err != nil {
		unknown = append(unknown, fmt.Errorf("which workers run is not known: %w", err))
	}
	return unknown
}

// check returns what keeps the job of a line from running.
func (c *checker) check(ctx context.Context, line producer.Line) ([]problem, error) {
	if line.Err != nil {
		return []problem{{"bad_line", line.Err.Error()}}, nil
	}
	job := line.Job
	queue := job.Queue
	if queue == "" {
		queue = "default"
	}
	var found []problem
	add := func(reason, format string, args ...any) {
		found = append(found, problem{reason, fmt.Sprintf(format, args...)})
	}
	if job.ID != "" {
		key := queue + "\x00" + job.ID
		if first, there := c.ids[key]; there {
			add("same_id", "line %d has the id %q, too: only one of them would run", first, job.ID)
		} else {
			c.ids[key] = line.Number
		}
	}
	switch {
	case !c.queues[queue] && c.served[queue] == 0:
		add("no_queue", "no pool of the configuration serves queue %q%s", queue, similar.Hint(queue, slices.Collect(maps.Keys(c.queues))))
	case len(c.served) > 0 && c.served[queue] == 0:
		c.unserved[queue]++
	}
	if text := c.handler(job.Type, queue); text != "" {
		add("no_handler", "%s", text)
	}
	tooMuch, err := c.limits(ctx, job, queue, add)
	if err != nil {
		return nil, err
	}
	found = append(found, tooMuch...)
	if job.Type == worker.HTTPTaskType {
		if reason, text := c.request(job.Payload); text != "" {
			add(reason, "%s", text)
		}
	}
	return found, nil
}

// handler says why nobody has a handler for a type, as far as is known. It uses the running
// workers that serve the queue, or else the configuration.
func (c *checker) handler(taskType, queue string) string {
	serving, lacking, pools := 0, 0, 0
	for _, w := range c.fleet {
		if !w.Serves(queue) {
			continue
		}
		for _, p := range w.Pools {
			if _, ok := p.Queues[queue]; ok && p.Takes {
				pools++
			}
		}
		switch serving++; w.Handles(taskType) {
		case presence.Handles:
			return ""
		case presence.LacksHandler:
			lacking++
		}
	}
	switch {
	case serving > 0 && lacking == serving && c.served != nil && pools >= c.served[queue]: // a server that is not among the workers may have one
		return fmt.Sprintf("none of the %d workers that run and serve queue %q has a handler for type %q%s", serving, queue, taskType, c.meantType(taskType))
	case taskType == worker.HTTPTaskType:
	case c.plans.For(taskType) == nil && similar.Hint(taskType, []string{worker.HTTPTaskType}) != "":
		return fmt.Sprintf("the configuration has no job %q%s", taskType, c.meantType(taskType))
	default: // it may be a type without limits, whatever it resembles
		c.unsure[taskType]++
	}
	return ""
}

// meantType is a suggestion for a type that may be misspelt.
func (c *checker) meantType(taskType string) string {
	known := []string{worker.HTTPTaskType}
	for _, j := range c.plans.All() {
		known = append(known, j.Name)
	}
	return similar.Hint(taskType, known)
}

// limits says what is wrong with the limits of a job.
func (c *checker) limits(ctx context.Context, job producer.Job, queue string, add func(string, string, ...any)) ([]problem, error) {
	p, err := c.plans.Plan(plan.Task{Type: job.Type, Queue: queue, Payload: job.Payload, Headers: job.Headers})
	if mistake, ok := errors.AsType[*plan.Mistake](err); ok {
		add(string(mistake.Reason), "%v: %s", mistake, mistake.Fix())
	} else if err != nil {
		add("bad_key", "%v", err)
	}
	var found []problem
	for _, d := range p.Draws {
		if d.Cost <= 1 {
			continue // every limit gives at least one permit
		}
		gives, err := c.gives(ctx, d)
		if err != nil {
			return nil, err
		}
		if d.Cost > gives {
			found = append(found, problem{"cost_above_limit",
				fmt.Sprintf("it costs %d permits of limit %q, which gives %d at once: lower the cost, or throttle set %s", d.Cost, d.Limiter, gives, d.Limit.Name)})
		}
	}
	return found, nil
}

// maxGives is how many limiters are remembered at most.
const maxGives = 100_000

// gives is how many permits a limiter gives at once: the limiter in Redis, or else the one that
// the configuration would create.
func (c *checker) gives(ctx context.Context, d plan.Draw) (int64, error) {
	if !c.asked {
		return d.Rate.Permits, nil
	}
	known, ok := c.permits[d.Limiter]
	if !ok {
		usages, err := operate.NewFleet(c.redis.Client).Inspect(ctx, d.Limiter)
		if _, refused := errors.AsType[redis.Error](err); refused {
			c.asked, c.unread = false, err
			return d.Rate.Permits, nil
		}
		if _, spoilt := errors.AsType[*operate.SpoiltError](err); err != nil && !spoilt {
			return 0, err
		}
		if len(usages) > 0 {
			known = usages[0].Rate.Permits
		}
		if len(c.permits) < maxGives {
			c.permits[d.Limiter] = known
		}
	}
	if known > 0 {
		return known, nil
	}
	return d.Rate.Permits, nil
}

// request says what is wrong with the payload of a job that is an HTTP request.
func (c *checker) request(payload []byte) (reason, text string) {
	err := c.http.Check(payload)
	if host, ok := errors.AsType[*worker.HTTPHostError](err); ok {
		return string(worker.HostNotAllowed), strings.TrimPrefix(host.Error(), worker.HTTPTaskType+": ") + c.meantHost(host.Host)
	}
	if err != nil {
		return string(worker.BadRequest), strings.TrimPrefix(err.Error(), worker.HTTPTaskType+": ")
	}
	return "", ""
}

// meantHost suggests an allowed host that is spelt alike.
func (c *checker) meantHost(host string) string { return similar.Hint(host, c.config.HTTP.AllowHosts) }

// notes says what the printed lines leave out.
func (c *checker) notes(alike map[string]int, asJSON bool) []string {
	var notes []string
	if c.unread != nil {
		notes = append(notes, "costs are checked by the configuration alone, because limits cannot be read: "+c.unread.Error())
	}
	for _, kind := range slices.Sorted(maps.Keys(alike)) {
		if more := alike[kind] - shownAlike; more > 0 && !asJSON {
			notes = append(notes, fmt.Sprintf("and %d more lines with %s (--json shows all)", more, kind))
		}
	}
	for _, queue := range slices.Sorted(maps.Keys(c.unserved)) {
		notes = append(notes, fmt.Sprintf("queue %q (%s): no worker that runs now serves it; one with this configuration does", queue, countJobs(c.unserved[queue])))
	}
	for _, taskType := range slices.Sorted(maps.Keys(c.unsure)) {
		if len(notes) >= shownAlike {
			return append(notes, "and jobs of more types")
		}
		limits := ""
		if c.plans.For(taskType) == nil {
			limits = "; no job of the configuration matches, so it has no limits" + c.meantType(taskType)
		}
		notes = append(notes, fmt.Sprintf("type %q (%s): whether a worker has a handler for it is not known%s", taskType, countJobs(c.unsure[taskType]), limits))
	}
	return notes
}
