package worker

import "testing"

// TestFallbackJoinsNoOtherLine: a task in line for one of its limiters that
// asynq brings back by itself does not join the line of another.
func TestFallbackJoinsNoOtherLine(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "")
	l := newLot(f.rdb)
	other, task := entry{id: "other", queue: "default", weight: 1, cost: 1}, entry{id: "task", queue: "default", weight: 1, cost: 1}
	for e, limiter := range map[*entry]string{&other: "a", &task: "b"} {
		if err := l.add(t.Context(), e, limiter); err != nil {
			t.Fatal(err)
		}
	}
	if limiter, ahead, err := l.enter(t.Context(), &task, []string{"a", "b"}); limiter != "b" || ahead != 1 || err != nil {
		t.Errorf("in line for %q, %d, %v; want b, 1", limiter, ahead, err)
	}
	for limiter, want := range map[string]string{"a": other.name(), "b": task.name()} {
		if got := f.rdb.ZRange(t.Context(), keysOf(limiter).line("default"), 0, -1).Val(); len(got) != 1 || got[0] != want {
			t.Errorf("in line for %s: %q, want %s alone", limiter, got, want)
		}
	}
}

// TestSetAside: a task that was called and cannot go on yet keeps its place,
// and the permits that come due call the next.
func TestSetAside(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "")
	l := newLot(f.rdb)
	called := func(want string) {
		t.Helper()
		calls, _, err := l.next(t.Context(), "api", []string{"default"}, 1)
		if err != nil || len(calls) != 1 || calls[0].name != want {
			t.Fatalf("called %v, %v; want %s", calls, err, want)
		}
	}
	first, second := entry{id: "first", queue: "default", weight: 1, cost: 1}, entry{id: "second", queue: "default", weight: 1, cost: 1}
	for _, e := range []*entry{&first, &second} {
		if err := l.add(t.Context(), e, "api"); err != nil {
			t.Fatal(err)
		}
	}
	called(first.name())
	if _, _, err := l.arrive(t.Context(), &first, []string{"api"}); err != nil || first.limiter != "api" {
		t.Fatalf("called by %q, %v", first.limiter, err)
	}
	if err := l.setAside(t.Context(), &first); err != nil {
		t.Fatal(err)
	}
	called(second.name())
	back := entry{id: first.id, queue: first.queue, weight: 1, cost: 1}
	if limiter, _, err := l.enter(t.Context(), &back, []string{"api"}); limiter != "" || err != nil || back.place != first.place {
		t.Errorf("comes back to %q in line for %q, %v; want %q", back.place, limiter, err, first.place)
	}
	if n := f.rdb.HLen(t.Context(), keysOf("api").costs).Val(); n != 0 {
		t.Errorf("%d costs are kept of tasks that cost 1", n)
	}
}
