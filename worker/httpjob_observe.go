package worker

import (
	"context"
	"net/http"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/httplimit"
)

// observe tells the job's limit what a response says about it. A server that fails is no
// evidence of a limit.
func observe(ctx context.Context, resp *http.Response) httplimit.Report {
	preset, err := httplimit.FindPreset(asynqlimit.Preset(ctx))
	if err != nil {
		preset = httplimit.Preset{} // none, or none that the configuration would accept
	}
	report := httplimit.Read(resp, preset)
	if report.Refused || resp.StatusCode < http.StatusInternalServerError {
		limit, window := report.ToldBy(resp)
		_ = asynqlimit.Observe(ctx, throttle.Outcome{Refused: report.Refused, Limit: limit, Window: window}) // no error: ctx is a job's
	} else {
		asynqlimit.NoEvidence(ctx)
	}
	return report
}
