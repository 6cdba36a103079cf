package strictapi

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"reflect"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	ServeIfAsked()
	goleak.VerifyTestMain(m)
}

func spawned(t *testing.T, limit int) *Process {
	t.Helper()
	p, err := Spawn(limit, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *Process) call(t *testing.T, job string) (status int) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + p.Addr() + "/?job=" + job)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// TestProcess: it counts like an API in this process, and reports as often as it is asked.
func TestProcess(t *testing.T) {
	p := spawned(t, 1)
	var statuses []int
	for range 2 {
		statuses = append(statuses, p.call(t, "a"))
	}
	if want := []int{200, 429}; !reflect.DeepEqual(statuses, want) {
		t.Errorf("statuses %v, want %v", statuses, want)
	}
	for range 2 {
		got, err := p.Report()
		want := Report{
			Requests: 2, Refused: 1, Now: 2, Peak: 2, Spread: got.Spread,
			Jobs:    map[string]int{"a": 2},
			Workers: map[string]Share{"Go-http-client/1.1": {2, 2}},
		}
		if err != nil || !reflect.DeepEqual(got, want) || got.Spread <= 0 {
			t.Errorf("report %+v, %v, want %+v", got, err, want)
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// TestServeEndsWithItsParent: what is left of a parent that was killed is the end of its pipe.
func TestServeEndsWithItsParent(t *testing.T) {
	in, parent := io.Pipe()
	answers, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- serve("1 1s", in, out) }()
	var addr string
	if err := json.NewDecoder(answers).Decode(&addr); err != nil {
		t.Fatal(err)
	}
	parent.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if conn, err := net.Dial("tcp", addr); err == nil {
		conn.Close()
		t.Error("its API still listens")
	}
}

// TestProcessOutlivesSignals: a Ctrl-C comes to all processes of a terminal, and the parent still wants to know.
func TestProcessOutlivesSignals(t *testing.T) {
	p := spawned(t, 1)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if err := p.cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	if status := p.call(t, "a"); status != http.StatusOK {
		t.Errorf("status %d", status)
	}
	if r, err := p.Report(); err != nil || r.Requests != 1 {
		t.Errorf("report %+v, %v", r, err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// TestProcessIsKilled: who asks it hears so.
func TestProcessIsKilled(t *testing.T) {
	p := spawned(t, 1)
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if r, err := p.Report(); err == nil {
		t.Errorf("report %+v of a process that is dead", r)
	}
	if err := p.Close(); !errors.As(err, new(*exec.ExitError)) {
		t.Errorf("closed: %v", err)
	}
}

func TestServeSaysWhatIsWrong(t *testing.T) {
	for _, of := range []string{"x", "5", "5 second"} {
		if err := serve(of, nil, nil); err == nil {
			t.Errorf("%q is taken", of)
		}
	}
}
