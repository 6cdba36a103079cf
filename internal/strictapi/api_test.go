package strictapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"testing/synctest"
	"time"
)

const ms = time.Millisecond

// call is one request, made after a wait, and what the API should say to it.
type call struct {
	after  time.Duration
	job    string
	worker string
	status int
}

func TestAPI(t *testing.T) {
	tests := []struct {
		name  string
		calls []call
		want  Report
	}{
		{
			name: "nobody calls",
			want: Report{Jobs: map[string]int{}, Workers: map[string]Share{}},
		},
		{
			name: "a burst up to the limit, and the next one an interval later",
			calls: []call{
				{0, "a", "w1", 200}, {0, "b", "w1", 200}, {0, "c", "w2", 200},
				{1000 * ms, "d", "w2", 200},
			},
			want: Report{
				Requests: 4, Now: 1, Peak: 3, Spread: 1000 * ms,
				Jobs:    map[string]int{"a": 1, "b": 1, "c": 1, "d": 1},
				Workers: map[string]Share{"w1": {2, 2}, "w2": {2, 1}},
			},
		},
		{
			name: "an interval that straddles two seconds",
			calls: []call{
				{900 * ms, "a", "w", 200}, {0, "b", "w", 200},
				{200 * ms, "c", "w", 200}, {0, "d", "w", 429},
			},
			want: Report{
				Requests: 4, Refused: 1, Now: 4, Peak: 4, Spread: 200 * ms,
				Jobs:    map[string]int{"a": 1, "b": 1, "c": 1, "d": 1},
				Workers: map[string]Share{"w": {4, 4}},
			},
		},
		{
			name: "1 ns too early",
			calls: []call{
				{0, "a", "w", 200}, {0, "b", "w", 200}, {0, "c", "w", 200},
				{1000*ms - 1, "d", "w", 429},
			},
			want: Report{
				Requests: 4, Refused: 1, Now: 4, Peak: 4, Spread: 1000*ms - 1,
				Jobs:    map[string]int{"a": 1, "b": 1, "c": 1, "d": 1},
				Workers: map[string]Share{"w": {4, 4}},
			},
		},
		{
			name: "refused requests count",
			calls: []call{
				{0, "a", "w", 200}, {0, "b", "w", 200}, {0, "c", "w", 200}, {500 * ms, "d", "w", 429},
				{500 * ms, "d", "w", 200}, {0, "e", "w", 200}, {0, "f", "w", 429},
			},
			want: Report{
				Requests: 7, Refused: 2, Now: 4, Peak: 4, Spread: 1000 * ms,
				Jobs:    map[string]int{"a": 1, "b": 1, "c": 1, "d": 2, "e": 1, "f": 1},
				Workers: map[string]Share{"w": {7, 4}},
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := New(3, time.Second)
				for i, c := range tt.calls {
					time.Sleep(c.after)
					if status := get(api, c).Code; status != c.status {
						t.Errorf("call %d (%s): status %d, want %d", i, c.job, status, c.status)
					}
				}
				if got := api.Report(); !reflect.DeepEqual(got, tt.want) {
					t.Errorf("report:\n got %+v\nwant %+v", got, tt.want)
				}
			})
		})
	}
}

func TestRetryAfterIsHonest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := New(1, 1500*ms)
		get(api, call{job: "a"})
		refused := get(api, call{job: "b"})
		if got := refused.Header().Get("Retry-After"); got != "2" {
			t.Fatalf("Retry-After %q, want 2", got)
		}
		time.Sleep(2 * time.Second)
		if again := get(api, call{job: "b"}); again.Code != http.StatusOK {
			t.Fatalf("status %d after Retry-After, want 200", again.Code)
		}
	})
}

func TestJobFromIdempotencyKey(t *testing.T) {
	api := New(1, time.Second)
	r := httptest.NewRequest(http.MethodPost, "/v1/x", nil)
	r.Header.Set("Idempotency-Key", "task-7")
	api.ServeHTTP(httptest.NewRecorder(), r)
	if got := api.Report().Jobs["task-7"]; got != 1 {
		t.Fatalf("task-7 arrived %d times, want 1", got)
	}
}

func TestServer(t *testing.T) {
	server, err := Start(1, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{200, 429} {
		resp, err := http.Get(fmt.Sprintf("http://%s/?job=%d", server.Addr(), i))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("request %d: status %d, want %d", i, resp.StatusCode, want)
		}
	}
	if err := server.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	http.DefaultClient.CloseIdleConnections()
}

func get(api *API, c call) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/?job="+c.job, nil)
	r.Header.Set("User-Agent", c.worker)
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r)
	return w
}
