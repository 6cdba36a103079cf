package version

import (
	"runtime/debug"
	"testing"
)

func TestRecorded(t *testing.T) {
	ours := func(version string) *debug.Module { return &debug.Module{Path: module, Version: version} }
	replaced := ours("v1.0.0")
	replaced.Replace = &debug.Module{Path: "example.com/fork", Version: "v1.0.1"}
	local := ours("v0.0.0")
	local.Replace = &debug.Module{Path: "../jobthrottle"}
	other := &debug.Module{Path: "example.com/other", Version: "v9.9.9"}
	for _, tt := range []struct {
		name string
		info *debug.BuildInfo
		want string
	}{
		{"nothing recorded", nil, ""},
		{"a command of ours", &debug.BuildInfo{Main: *ours("v1.2.3")}, "v1.2.3"},
		{"a program of a user", &debug.BuildInfo{Main: *other, Deps: []*debug.Module{other, ours("v1.2.3")}}, "v1.2.3"},
		{"with a fork of this module", &debug.BuildInfo{Main: *other, Deps: []*debug.Module{replaced}}, "v1.0.1"},
		{"with a directory in its place", &debug.BuildInfo{Main: *other, Deps: []*debug.Module{local}}, "v0.0.0"},
		{"a program without it", &debug.BuildInfo{Main: *other}, ""},
	} {
		if got := recorded(tt.info); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	if String() == "" {
		t.Error("no version, want at least a word for that")
	}
}
