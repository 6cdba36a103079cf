package similar

import "testing"

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"a", "", 1}, {"", "abc", 3}, {"stripe", "stripe", 0}, {"strpe", "stripe", 1}, {"stirpe", "stripe", 1},
		{"stripex", "stripe", 1}, {"sttipe", "stripe", 1}, {"kitten", "sitting", 3}, {"ab", "ba", 1}, {"abcd", "badc", 2},
	} {
		if got := distance(tt.a, tt.b); got != tt.want {
			t.Errorf("from %q to %q: %d, want %d", tt.a, tt.b, got, tt.want)
		}
		if got := distance(tt.b, tt.a); got != tt.want {
			t.Errorf("from %q to %q: %d, want %d", tt.b, tt.a, got, tt.want)
		}
	}
}

func TestHint(t *testing.T) {
	there := []string{"waiting", "failed", "archived"}
	for name, want := range map[string]string{
		"archvied": `: did you mean "archived"?`, "Failed": `: did you mean "failed"?`, "nonsense": "", "": "", "waiting": "",
	} {
		if got := Hint(name, there); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	if got := Hint("api1", []string{"api2", "api3", "api4", "api5", "api6", "api7", "api8", "api"}); got != `: did you mean "api" or "api2" or "api3"?` {
		t.Errorf("of many: %q", got)
	}
}
