//go:build unix

package judge

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/record"
)

// TestMain is also the process, which is this program again.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == Subcommand {
		if err := Serve(os.Args[2], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// TestJudge: all that arrives is in the record, in order, with the machine's time.
func TestJudge(t *testing.T) {
	j, err := Start(filepath.Join(t.TempDir(), "arrivals"))
	if err != nil {
		t.Fatal(err)
	}
	before := record.Now()
	calls := []record.Arrival{{Worker: "jobthrottle/a", Job: "1"}, {Worker: "two words", Job: "2"}, {Worker: "jobthrottle/a", Job: ""}, {Worker: `"`, Job: "a b\n"}}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, call := range calls {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+j.Addr, nil)
		if err != nil {
			t.Fatal(err)
		}
		query := req.URL.Query()
		query.Set("job", call.Job)
		req.URL.RawQuery = query.Encode()
		req.Header.Set("User-Agent", call.Worker)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("status %d", resp.StatusCode)
		}
	}
	arrivals, err := j.Stop()
	if err != nil {
		t.Fatal(err)
	}
	if len(arrivals) != len(calls) {
		t.Fatalf("%d arrivals, want %d", len(arrivals), len(calls))
	}
	for i, a := range arrivals {
		if a.Worker != calls[i].Worker || a.Job != calls[i].Job {
			t.Errorf("arrival %d is %+v, want %+v", i, a, calls[i])
		}
		if a.Status != http.StatusOK || a.Ended < a.At {
			t.Errorf("arrival %d ended at %v with status %d, want 200 after %v", i, a.Ended, a.Status, a.At)
		}
		if a.At < before || a.At > record.Now() {
			t.Errorf("arrival %d came at %v, want a time between %v and %v", i, a.At, before, record.Now())
		}
		before = a.At
	}
}

// TestJudgeIsAsked: it refuses a job once and takes its time if the request says so. A caller that does not wait
// for the answer is in the record, too.
func TestJudgeIsAsked(t *testing.T) {
	j, err := Start(filepath.Join(t.TempDir(), "arrivals"))
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(query string, patience time.Duration) (status int) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+j.Addr+"/?"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			return 0
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	want := []int{http.StatusInternalServerError, http.StatusOK, http.StatusOK, 0}
	got := []int{
		get("job=a&refuse=1", time.Minute), get("job=a&refuse=1", time.Minute),
		get("job=b&takes=100ms", time.Minute), get("job=c&takes=1h", 100*time.Millisecond),
	}
	arrivals, err := j.Stop()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) || len(arrivals) != len(want) {
		t.Fatalf("answers %v, arrivals %+v; want %v", got, arrivals, want)
	}
	for i, a := range arrivals {
		if a.Status != want[i] {
			t.Errorf("arrival %+v, want status %d", a, want[i])
		}
	}
	for i, least := range []time.Duration{0, 0, 100 * time.Millisecond, 100 * time.Millisecond} {
		if a := arrivals[i]; a.Ended-a.At < least-10*time.Millisecond {
			t.Errorf("arrival %+v took %v, want %v", a, a.Ended-a.At, least)
		}
	}
}

func TestStartFails(t *testing.T) {
	_, err := Start(filepath.Join(t.TempDir(), "no", "such", "directory"))
	if err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("%v, want what the process said", err)
	}
}

func TestBadRecord(t *testing.T) {
	file := filepath.Join(t.TempDir(), "arrivals")
	if err := os.WriteFile(file, []byte("12 \"w\" \"j\" 13 200\nnonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := record.Read(file); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("%v, want an error that names the line", err)
	}
}
