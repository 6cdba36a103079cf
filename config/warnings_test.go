package config

import (
	"slices"
	"testing"
)

// TestWarnings: a limit that no job uses is accepted, and told with its position.
func TestWarnings(t *testing.T) {
	cfg, err := Parse("config.yaml", []byte("limits:\n  b: { in_flight: 4 }\n  used: { rate: 1/1s }\n  a.b: { rate: 1/1s }\njobs: { x: { limits: [used] } }\n"))
	if err != nil {
		t.Fatal(err)
	}
	const because = ": no job uses this limit: name it in the limits of a job, or remove it, unless a program uses it without a job"
	var got []string
	for _, w := range cfg.Warnings() {
		got = append(got, w.Error())
	}
	if want := []string{"config.yaml:4:3: limits.a.b" + because, "config.yaml:2:3: limits.b" + because}; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	cfg.Jobs["y"] = Job{Limits: []string{"b", "a.b"}}
	if w := cfg.Warnings(); len(w) > 0 {
		t.Errorf("%v, although all are used", w)
	}
	built := Default()
	built.Limits = map[string]Limit{"a": {Rate: "1/1s"}}
	if w := built.Warnings(); built.Validate() != nil || len(w) != 1 || w[0].Error() != "limits.a"+because {
		t.Errorf("built in code: %v, %v", w, built.Validate())
	}
}

// TestWholeConfiguration loads a file with a section of each kind, as the design promises it: some of its
// limits are there for jobs that are yet to come.
func TestWholeConfiguration(t *testing.T) {
	t.Setenv("REDIS_PASSWORD", "s3cret")
	cfg, err := Load("testdata/whole.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.Limits) != 8 || len(cfg.Warnings()) != 5 {
		t.Errorf("%d limits and %d warnings, want 8 and 5", len(cfg.Limits), len(cfg.Warnings()))
	}
}

// TestUnusedLimitOfEachWorker: a limit of each worker that no job uses leaves the pools the room that they have without it.
func TestUnusedLimitOfEachWorker(t *testing.T) {
	for used, want := range map[bool]int{true: 10, false: 80} {
		jobs := "{ x: {} }"
		if used {
			jobs = "{ x: { limits: [a] } }"
		}
		cfg, err := Parse("config.yaml", []byte("limits: { a: { rate: 5/1s, type: per_client } }\njobs: "+jobs+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		if all, _ := cfg.Waiting(Pool{Concurrency: 20}); all != want {
			t.Errorf("used %v: %d may wait, want %d", used, all, want)
		}
	}
}
