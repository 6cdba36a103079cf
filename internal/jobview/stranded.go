package jobview

import (
	"context"
	"fmt"

	"github.com/jobthrottle/jobthrottle/internal/line"
)

// maxCompared is how many tasks Stranded reads at most.
const maxCompared = 10_000

// Stranded counts the tasks that a lower rate would strand, in the lines of a limiter and of tenants
// that share it. These cost at most gives, the permits that the limiter gives at once now, and more
// than it will give (then). Stranded reads at most 10,000 tasks, and 500 tenants of a queue. all is
// false if there are more.
func (i *Inspector) Stranded(ctx context.Context, limiter string, gives, then int64) (n int, all bool, err error) {
	queues, err := i.Queues(ctx)
	if err != nil {
		return 0, false, err
	}
	read, all := int64(0), true
	for _, queue := range queues {
		waiting, err := i.lines.Tenants(ctx, []line.TenantsOf{{Queue: queue, Limiter: limiter, Most: maxTenants}})
		if err != nil {
			return n, false, fmt.Errorf("read the tenants of limiter %q: %w", limiter, err)
		}
		lines := []string{limiter}
		for _, t := range waiting[0].First {
			lines = append(lines, line.OfTenant(limiter, t.Name))
		}
		all = all && waiting[0].All <= int64(len(waiting[0].First))
		for _, name := range lines {
			for from := int64(0); ; from += inspectPage {
				if read >= maxCompared {
					return n, false, nil
				}
				tasks, err := i.lines.Tasks(ctx, queue, name, from, inspectPage)
				if err != nil {
					return n, false, fmt.Errorf("read the line of limiter %q: %w", limiter, err)
				}
				for _, t := range tasks {
					if t.Cost > then && t.Cost <= gives {
						n++
					}
				}
				read += int64(len(tasks))
				if len(tasks) < inspectPage {
					break
				}
			}
		}
	}
	return n, all, nil
}

// WouldWait says what becomes of n jobs that a limit would strand, or at least n if all is
// false.
func WouldWait(n int, all bool) string {
	they := fmt.Sprintf("%d jobs that wait cost", n)
	if n == 1 {
		they = "1 job that waits costs"
	}
	if !all {
		they = "at least " + they
	}
	return they + " more than that, and would wait until the limit is raised"
}
