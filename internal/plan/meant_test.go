package plan

import "testing"

// TestMeant: a type that no pattern matches may be meant for one that is spelt similarly, or that lacks the ":" at its
// end. Types with another number, and those that only share a beginning or an end with a pattern are others.
func TestMeant(t *testing.T) {
	js := jobsOf(t, `
jobs:
  "stirpe:": {}
  "mail*": {}
  "users:create": {}
  "report:daily": {}
  "sms": {}
  "eu1:": {}
`)
	for taskType, want := range map[string]string{
		"stripe:charge": "stirpe:", "stripe": "stirpe:", "Stirpe:charge": "stirpe:", "stirpe": "stirpe:", "strpe:a:b": "stirpe:",
		"mial:send": "mail*", "user:create": "users:create", "users:craete": "users:create", "sms:send": "sms", "report:daily:eu": "report:daily",
		"users:delete": "", "teams:create": "", "report:hourly": "", "users": "", "resize": "", "": "", ":": "", "sms2:send": "", "eu2:send": "", "report:dayly:eu": "",
	} {
		if got := js.Meant(taskType); got != want {
			t.Errorf("%q: %q, want %q", taskType, got, want)
		}
	}
}
