package admin

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/jobthrottle/jobthrottle/internal/jobview"
	"github.com/jobthrottle/jobthrottle/internal/plain"
	"github.com/jobthrottle/jobthrottle/internal/secrets"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
	"github.com/jobthrottle/jobthrottle/worker/metrics"
)

// readyTimeout is how long /readyz waits for Redis before it reports that it is not ready.
const readyTimeout = 2 * time.Second

//go:embed page
var page embed.FS

// Source is what a [Handler] shows: a *worker.Worker, or the limits of an asynq server.
type Source interface {
	metrics.Source
	ID() string
	Inspector() *jobview.Inspector
	Fleet() *operate.Fleet
	OtherQueues(ctx context.Context) (jobview.OtherQueues, error)
	JobsOfLimit(ctx context.Context, q jobview.JobQuery) (jobview.JobPage, error)
	JobsOfValue(ctx context.Context, q jobview.JobQuery, value string) (jobview.JobPage, error)
	Limiter(name string) (*throttle.Limiter, throttle.Rate, error)
	Ready(context.Context) error
}

// Handler serves what operators need:
//
//	/healthz   200 while the process lives
//	/readyz    200 while it can do jobs, 503 with the reason when it cannot
//	/metrics   for Prometheus: see package metrics
//	/          the page, which uses /api/
//
// Reading needs no token: do not serve it where strangers can reach it. Pages of other sites
// cannot read anything, because browsers say which page asks. On a loopback address, requests
// must name localhost or a loopback address as their host, except for the health checks. So no
// web page of another site can read it through a name of its own. Elsewhere the contents of jobs
// are shown only under an address, under a name of [Options.Hosts] or one that nobody can
// register, such as worker or worker.default.svc, or with the token.
type Handler struct {
	http.Handler
	sampler *sampler
}

// NewHandler returns a [Handler] for a server of the caller's. It treats requests that come to a
// loopback address as requests on one.
func NewHandler(source Source, opts Options) *Handler {
	return newHandler(source, opts, cameByLoopback)
}

// Run continues the history of limits while nobody uses the page, until ctx ends.
func (h *Handler) Run(ctx context.Context) { h.sampler.run(ctx) }

func newHandler(source Source, opts Options, loopback func(*http.Request) bool) *Handler {
	s, logger := newSampler(source), opts.logger()
	g := guard{token: opts.Token, hosts: opts.Hosts, loopback: loopback, guesses: &guesses{logger: logger}}
	a := &api{source: source, sampler: s, writable: opts.Token != "", logger: logger, reading: make(chan struct{}, 1),
		hide: secrets.New(opts.Hide), fleet: newFleet(source), otherQueues: newOtherQueues(source), hour: newHour(source)}
	inside := http.NewServeMux()
	inside.Handle("GET /", files())
	inside.Handle("GET /metrics", g.read(promhttp.HandlerFor(registry(s), promhttp.HandlerOpts{})))
	inside.Handle("GET /api/overview", g.read(http.HandlerFunc(a.overview)))
	inside.Handle("GET /api/history", g.read(http.HandlerFunc(a.history)))
	inside.Handle("GET /api/explain", g.jobs(a.explain))
	inside.Handle("POST /api/limits/{name}/rate", g.change(a.setRate))
	inside.Handle("POST /api/limits/{name}/pause", g.change(a.pause))
	inside.Handle("POST /api/limits/{name}/resume", g.change(a.resume))
	inside.Handle("GET /api/jobs", g.jobs(a.jobs))
	inside.Handle("GET /api/job", g.jobs(a.job))
	inside.Handle("GET /api/workers", g.read(http.HandlerFunc(a.workers)))
	inside.Handle("GET /api/others", g.read(http.HandlerFunc(a.others)))
	inside.Handle("GET /api/past", g.read(http.HandlerFunc(a.past)))
	inside.Handle("POST /api/jobs/retry", g.change(a.retryJobs))
	inside.Handle("POST /api/jobs/delete", g.change(a.deleteJobs))
	inside.Handle("POST /api/queues/{name}/pause", g.change(a.pauseQueue))
	inside.Handle("POST /api/queues/{name}/unpause", g.change(a.unpauseQueue))
	inside.HandleFunc("GET /api/", unknownPath)
	inside.Handle("POST /api/", g.change(unknownPath))

	outside := http.NewServeMux()
	outside.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok")
	})
	outside.HandleFunc("GET /readyz", func(rw http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		if err := source.Ready(ctx); err != nil {
			http.Error(rw, plain.Lines(err), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(rw, "ready")
	})
	outside.Handle("/", g.host(inside))
	return &Handler{Handler: headers(cleanPath(outside)), sampler: s}
}

// files serves the page. Its files change only with the program.
func files() http.Handler {
	root, err := fs.Sub(page, "page")
	if err != nil {
		panic(err) // embedded: it cannot be missing
	}
	server := http.FileServerFS(root)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" && strings.HasSuffix(r.URL.Path, "/") {
			http.NotFound(w, r) // do not list files
			return
		}
		server.ServeHTTP(w, r)
	})
}

// registry has the metrics of the worker and of its process.
func registry(source metrics.Source) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(
		metrics.NewCollector(source),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector(),
	)
	return r
}
