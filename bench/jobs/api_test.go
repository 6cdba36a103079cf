package main

import (
	"net/http"
	"os"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if args := os.Args[1:]; len(args) == 2 && args[0] == apiArg {
		if err := serveAPI(args[1]); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(m.Run())
}

// TestAPI: the API tells when as many requests have come as it expects, by whom, and when each of them came.
func TestAPI(t *testing.T) {
	agents := []string{"one", "two", "one"}
	began := time.Now().Round(0) // both processes read the wall clock
	api, err := startAPI(t.Context(), len(agents))
	if err != nil {
		t.Fatal(err)
	}
	for _, agent := range agents {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+api.addr+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("User-Agent", agent)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	f := &fleet{done: make(chan struct{})}
	go f.hear(api)
	<-f.done
	if f.err != nil || len(f.starts) != len(agents) {
		t.Fatalf("%v, %v; want %d arrivals", f.starts, f.err, len(agents))
	}
	for i, s := range f.starts {
		if s.worker != agents[i] || s.at.Before(began) || s.at.After(time.Now()) || i > 0 && s.at.Before(f.starts[i-1].at) {
			t.Errorf("arrival %d: %v by %v, after %v; want one by %s since then", i, s.at, s.worker, began, agents[i])
		}
	}
	if err := api.stop(f.done); err != nil {
		t.Error(err)
	}
}
