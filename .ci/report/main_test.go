package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestReport: of a real go test one sees what fails, in full, and none of what
// passes; and reads in the file what was skipped.
func TestReport(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":               "module example.com/m\n\ngo 1.26.0\n",
		"good/good_test.go":    "package good\n\nimport \"testing\"\n\nfunc TestGood(t *testing.T) { t.Log(\"nobody reads this\") }\n\nfunc TestSkipped(t *testing.T) { t.Skip(\"takes\\nlong\") }\n\nfunc TestParts(t *testing.T) { t.Run(\"one\", func(t *testing.T) { t.Skip() }) }\n",
		"bad/bad_test.go":      "package bad\n\nimport \"testing\"\n\nfunc TestBad(t *testing.T) { t.Run(\"part\", func(t *testing.T) { t.Error(\"what is wrong\") }) }\n\nfunc TestFine(t *testing.T) { t.Log(\"nor this\") }\n",
		"panics/panic_test.go": "package panics\n\nimport \"testing\"\n\nfunc TestPanics(t *testing.T) { go panic(\"oh no\"); select {} }\n",
		"broken/broken.go":     "package broken\n\nfunc f() int { return \"\" }\n",
		"broken/b_test.go":     "package broken\n",
		"none/none.go":         "package none\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "test", "-json", "-p", "1", "./...")
	cmd.Dir = dir
	events, err := cmd.Output()
	if err == nil {
		t.Fatal("the tests pass")
	}
	var shown bytes.Buffer
	path := filepath.Join(dir, "summary")
	if err := run(bytes.NewReader(append(events, "a line of the go command\n"...)), &shown, path); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"ok  \texample.com/m/good", "FAIL\texample.com/m/bad", "--- FAIL: TestBad/part", "what is wrong", "panic: oh no", "no test files", "cannot use", "a line of the go command\n",
	} {
		if !strings.Contains(shown.String(), want) {
			t.Errorf("no %q in\n%s", want, &shown)
		}
	}
	for _, not := range []string{"nobody reads this", "nor this", "=== RUN", "takes"} {
		if strings.Contains(shown.String(), not) {
			t.Errorf("%q in\n%s", not, &shown)
		}
	}
	summary, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"3 tests passed, 2 failed, 2 were skipped\n", // a panic that no test had is of the package
		"  skipped example.com/m/good TestSkipped: takes long\n", "  skipped example.com/m/good TestParts/one: \n", "s example.com/m/good\n", "s example.com/m/bad TestBad\n",
	} {
		if !strings.Contains(string(summary), want) {
			t.Errorf("no %q in\n%s", want, summary)
		}
	}
}

// TestReportOfAProgram: of a test program that did not run under go test, which tells how packages
// end, one sees that, too.
func TestReportOfAProgram(t *testing.T) {
	events := `{"Action":"start","Package":"example.com/m/good"}
{"Action":"output","Package":"example.com/m/good","Output":"PASS\n"}
{"Action":"pass","Package":"example.com/m/good","Elapsed":1.5}
{"Action":"fail","Package":"example.com/m/bad","Elapsed":0.25}
`
	var shown bytes.Buffer
	if err := run(strings.NewReader(events), &shown, filepath.Join(t.TempDir(), "summary")); err != nil {
		t.Fatal(err)
	}
	if want := "ok  \texample.com/m/good\t1.500s\nFAIL\texample.com/m/bad\t0.250s\n"; shown.String() != want {
		t.Errorf("shown %q, want %q", &shown, want)
	}
}
