package admin_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/embedded"
	"github.com/jobthrottle/jobthrottle/worker"
	"github.com/jobthrottle/jobthrottle/worker/admin"
)

// A program that runs a worker serves its health checks, its metrics and its page.
func ExampleServe() {
	server, err := embedded.Start() // your Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	w, err := worker.NewWithClient(config.Default(), zap.NewNop(), rdb)
	if err != nil {
		log.Fatal(err)
	}

	listener, err := admin.Listen("127.0.0.1:0") // 127.0.0.1:9464, for example
	if err != nil {
		log.Fatal(err)
	}
	address := admin.Serve(listener, w, admin.Options{Token: "which changes need"})
	defer address.Close()
	defer http.DefaultClient.CloseIdleConnections()
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/"} {
		resp, err := http.Get("http://" + listener.Addr().String() + path)
		if err != nil {
			log.Fatal(err)
		}
		resp.Body.Close()
		fmt.Println(path, resp.Status)
	}
	// The worker is not ready before its Run.

	// Output:
	// /healthz 200 OK
	// /readyz 503 Service Unavailable
	// /metrics 200 OK
	// / 200 OK
}

// A program with a server of its own mounts the page there.
func ExampleNewHandler() {
	server, err := embedded.Start() // your Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	w, err := worker.NewWithClient(config.Default(), zap.NewNop(), rdb)
	if err != nil {
		log.Fatal(err)
	}
	handler := admin.NewHandler(w, admin.Options{})
	mine := httptest.NewServer(handler) // your server
	defer mine.Close()
	resp, err := http.Get(mine.URL + "/healthz")
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)
	// Output: 200 OK
}
