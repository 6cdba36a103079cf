package worker

import (
	"context"
	"net/netip"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/hosts"
	"github.com/jobthrottle/jobthrottle/internal/plan"
)

// HTTPCheck tells, before jobs of [HTTPTaskType] are enqueued, which of them a worker with a
// configuration would refuse. It is safe for concurrent use.
type HTTPCheck struct {
	hosts  hostList
	fields []string
}

// NewHTTPCheck returns the check of a configuration.
func NewHTTPCheck(cfg *config.Config) (*HTTPCheck, error) {
	plans, err := plan.New(cfg)
	if err != nil {
		return nil, err
	}
	list, err := hosts.Parse(cfg.HTTP.AllowHosts)
	if err != nil {
		return nil, err
	}
	return &HTTPCheck{hostList{list}, plans.Fields()}, nil
}

// Check returns an [*HTTPPayloadError] or an [*HTTPHostError] if the worker would refuse the
// payload of a job. It resolves no name and connects to nothing. So it cannot find an allowed
// host with a private address, or a redirect: these show only when the job runs.
func (c *HTTPCheck) Check(payload []byte) error {
	parsed, err := parseHTTPRequest(payload, c.fields)
	if err != nil {
		return err
	}
	req, err := parsed.build(context.Background())
	if err != nil {
		return err
	}
	if err := c.hosts.check(req.URL); err != nil {
		return err
	}
	if addr, err := netip.ParseAddr(req.URL.Hostname()); err == nil {
		return c.hosts.checkAddr(req.URL.Hostname(), portOf(req.URL), addr)
	}
	return nil
}
