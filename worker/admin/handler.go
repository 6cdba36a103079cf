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

	"github.com/jobthrottle/jobthrottle/internal/plain"
	"github.com/jobthrottle/jobthrottle/worker"
	"github.com/jobthrottle/jobthrottle/worker/metrics"
)

// readyTimeout bounds how long /readyz waits for Redis before it says no.
const readyTimeout = 2 * time.Second

//go:embed page
var page embed.FS

func newHandler(w *worker.Worker, s *sampler, opts Options, loopback bool) http.Handler {
	g := guard{token: opts.Token, loopback: loopback, guesses: &guesses{logger: opts.Logger}}
	a := &api{worker: w, sampler: s, writable: opts.Token != "", logger: opts.Logger, explaining: make(chan struct{}, 1)}
	inside := http.NewServeMux()
	inside.Handle("GET /", files())
	inside.Handle("GET /metrics", g.read(promhttp.HandlerFor(registry(s), promhttp.HandlerOpts{})))
	inside.Handle("GET /api/overview", g.read(http.HandlerFunc(a.overview)))
	inside.Handle("GET /api/history", g.read(http.HandlerFunc(a.history)))
	inside.Handle("GET /api/explain", g.read(http.HandlerFunc(a.explain)))
	inside.Handle("POST /api/limits/{name}/rate", g.change(a.setRate))
	inside.Handle("POST /api/limits/{name}/pause", g.change(a.pause))
	inside.Handle("POST /api/limits/{name}/resume", g.change(a.resume))
	inside.HandleFunc("GET /api/", unknownPath)
	inside.Handle("POST /api/", g.change(unknownPath))

	outside := http.NewServeMux()
	outside.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok")
	})
	outside.HandleFunc("GET /readyz", func(rw http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		if err := w.Ready(ctx); err != nil {
			http.Error(rw, plain.Lines(err), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(rw, "ready")
	})
	outside.Handle("/", g.host(inside))
	return headers(cleanPath(outside))
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
			http.NotFound(w, r) // rather than a list of files
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
