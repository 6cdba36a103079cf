package expr

import "testing"

func TestSelector(t *testing.T) {
	task := Task{Type: "x", Queue: "low", Payload: []byte(`{"a": {"b": "text", "n": 12345678901234567890, "t": true, "o": {}}, "e": "\u00e9"}`), Headers: map[string]string{"h.1": "v"}}
	for path, want := range map[string]string{
		"payload.a.b": "text",
		"payload.a.n": "12345678901234567890",
		"payload.a.t": "true",
		"payload.e":   "é",
		"header.h.1":  "v",
		"queue":       "low",
	} {
		sel, err := ParseSelector(path)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := sel.Pick(task); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", path, got, err, want)
		}
	}
	for path, want := range map[string]string{
		"payload.a.x":   "the payload has no a.x",
		"payload.a.b.c": "payload.a.b is not a JSON object",
		"payload.a.o":   "payload.a.o is not a string, number or boolean",
		"header.none":   `the task has no header "none"`,
	} {
		sel, err := ParseSelector(path)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := sel.Pick(task); err == nil || err.Error() != want {
			t.Errorf("%s: got %q, %v, want the error %q", path, got, err, want)
		}
	}
	for _, path := range []string{"", "payload", "payload.", "payload.a..b", "header", "header.", "queue.x", "body.x"} {
		if _, err := ParseSelector(path); err == nil {
			t.Errorf("%q: got no error", path)
		}
	}
}
