package worker

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/throttle"
)

// TestHTTPJobsParkUntried: a backlog of HTTP jobs parks without an attempt for each of them, which costs Redis little. Jobs among
// them that cannot run are told at once all the same.
func TestHTTPJobsParkUntried(t *testing.T) {
	t.Parallel()
	f := newFleet(t, `
limits: { api: { rate: 10/1s } }
jobs: { "http:request": { limits: [api], hold: 100ms } }
http: { allow_hosts: [127.0.0.1] }
`)
	rate := throttle.Rate{Permits: 10, Interval: time.Second}
	if err := f.limiter("api").SetRate(t.Context(), rate); err != nil {
		t.Fatal(err)
	}
	f.stopLimit()
	const jobs = 1000
	for i := range jobs {
		f.request("http://127.0.0.1:1/", fmt.Sprint("job", i))
		if i == jobs/2 {
			f.request("ftp://127.0.0.1:1/", "wrong")
			f.request("http://elsewhere.example/", "elsewhere")
		}
	}
	if err := f.rdb.ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	f.work(nil)
	f.awaitInLine(jobs)
	if calls := f.scriptCalls(); calls > jobs/2 {
		t.Errorf("%d script calls for %d jobs to park", calls, jobs)
	}
	if info := f.awaitState("wrong", asynq.TaskStateRetry); !strings.Contains(info.LastErr, "want an absolute http or https URL") {
		t.Errorf("the job that is no request waits because of %q", info.LastErr)
	}
	if info := f.awaitState("elsewhere", asynq.TaskStateRetry); !strings.Contains(info.LastErr, "elsewhere.example") {
		t.Errorf("the job for a host that is not allowed waits because of %q", info.LastErr)
	}
}

// request enqueues a request.
func (f *fleet) request(url, id string, opts ...asynq.Option) {
	f.t.Helper()
	task := asynq.NewTask(HTTPTaskType, []byte(`{"url":"`+url+`"}`))
	if _, err := f.client.Enqueue(task, append(opts, asynq.TaskID(id))...); err != nil {
		f.t.Fatal(err)
	}
}

var callsOfScripts = regexp.MustCompile(`cmdstat_eval(?:sha)?:calls=(\d+)`)

// scriptCalls is how many scripts Redis has run.
func (f *fleet) scriptCalls() (n int) {
	f.t.Helper()
	for _, calls := range callsOfScripts.FindAllStringSubmatch(f.rdb.Info(f.t.Context(), "commandstats").Val(), -1) {
		more, err := strconv.Atoi(calls[1])
		if err != nil {
			f.t.Fatal(err)
		}
		n += more
	}
	return n
}

// TestHTTPJobResultThatNobodyCanRead: asynq deletes a job without a retention when it is done. Its result is not written first.
func TestHTTPJobResultThatNobodyCanRead(t *testing.T) {
	t.Parallel()
	f := newFleet(t, `http: { allow_hosts: [127.0.0.1] }`)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "answer") }))
	t.Cleanup(api.Close)
	for setting, value := range map[string]string{"slowlog-log-slower-than": "0", "slowlog-max-len": "100000"} {
		if err := f.rdb.ConfigSet(t.Context(), setting, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	f.request(api.URL, "forgotten")
	f.request(api.URL, "kept", asynq.Retention(time.Hour))
	f.work(nil)
	if info := f.awaitState("kept", asynq.TaskStateCompleted); !strings.Contains(string(info.Result), "answer") {
		t.Errorf("result %q, want the answer", info.Result)
	}
	f.awaitThat(10*time.Second, func() (bool, string) {
		n := f.rdb.Exists(t.Context(), "asynq:{default}:t:forgotten").Val()
		return n == 0, "the job without a retention is there"
	})
	log, err := f.rdb.SlowLogGet(t.Context(), -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	var written []string
	for _, entry := range log {
		if args := entry.Args; strings.EqualFold(args[0], "hset") && slices.Contains(args, "result") {
			written = append(written, args[1])
		}
	}
	if want := []string{"asynq:{default}:t:kept"}; !slices.Equal(written, want) {
		t.Errorf("results were written of %q, want of %q", written, want)
	}
}

// TestHTTPJobIsCheckedBeforeItWaits: a request that cannot be sent is told at once, although its limit gives no permits, also where
// max_in_flight says how many requests a worker sends at a time.
func TestHTTPJobIsCheckedBeforeItWaits(t *testing.T) {
	t.Parallel()
	f := newFleet(t, `
limits: { api: { rate: 10/1s } }
jobs: { "http:request": { limits: [api], max_in_flight: 2, hold: 100ms } }
http: { allow_hosts: [127.0.0.1] }
`)
	f.work(nil)
	f.stopLimit()
	f.request("ftp://127.0.0.1:1/", "wrong")
	f.request("http://elsewhere.example/", "elsewhere")
	f.awaitExplained("wrong", func(e *Explanation) bool { return e.Blocked == BadRequest })
	f.awaitExplained("elsewhere", func(e *Explanation) bool { return e.Blocked == HostNotAllowed })
}
