package worker

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// TestWrongRequestsWait: a job whose own payload describes no request waits, and uses up no retry,
// whoever enqueued it. Explain says what to change. It takes no permits from the jobs behind it, and
// is done when somebody has corrected it.
func TestWrongRequestsWait(t *testing.T) {
	t.Parallel()
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(api.Close)
	host, err := url.Parse(api.URL)
	if err != nil {
		t.Fatal(err)
	}
	const jobs, good = 3, 10 // of each kind of producer, and behind them; the limit has permits for good+1
	type fields map[string]any
	wrong := []struct {
		payload any
		says    string
	}{
		{"no request", "want a JSON object with url"},
		{fields{"method": "GET"}, "url: want an absolute http or https URL"},
		{fields{"url": "ftp://" + host.Host}, "url: want an absolute http or https URL"},
		{fields{"url": api.URL, "method": "GE T"}, "method: invalid method"},
		{fields{"url": api.URL, "headers": fields{"Host": "x"}}, "headers: Host is not for a job to set"},
		{fields{"url": api.URL, "body": 1}, "body: want"},
	}
	for _, w := range wrong {
		t.Run(w.says, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, "")
			f.backlog(HTTPTaskType, jobs, w.payload)
			f.workWith(`
limits: { api: { rate: 11/1h } }
jobs: { "http:request": { limits: [api] } }
http: { allow_hosts: ["`+host.Host+`"] }
log: { level: warn }
`, "x:")
			f.awaitAllWait(jobs)
			f.awaitExplained("job0", func(e *Explanation) bool { // it may just be tried
				text := strings.Join(e.Text(), "\n")
				return e.Blocked == BadRequest && e.PutOff && strings.Contains(text, w.says) && strings.Contains(text, "enqueue it again with that corrected")
			})
			for i := range good {
				f.request(api.URL, fmt.Sprint("good", i), asynq.Retention(time.Hour))
			}
			f.awaitThat(10*time.Second, func() (bool, string) {
				done := f.queue().Completed
				return done == good, fmt.Sprintf("%d of %d good jobs are done", done, good)
			})
			f.checkUnharmed(jobs + good)
			f.awaitThat(5*time.Second, func() (bool, string) { // not while it is tried
				err := f.inspector.DeleteTask("default", "job0")
				return err == nil, fmt.Sprint(err)
			})
			f.request(api.URL, "job0", asynq.Retention(time.Hour))
			f.awaitState("job0", asynq.TaskStateCompleted)
		})
	}
}
