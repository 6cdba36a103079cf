package docs_test

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/producer"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/worker/metrics"
)

// keyRow is a row of a table of configuration.md: key, type and default.
var keyRow = regexp.MustCompile("^\\| `([^`]+)` \\| ([^|]+) \\| ([^|]*?) ?\\|(.*)\\|$")

// TestConfigurationReference: the page names every key of the configuration
// with its type and default, and none that is not there.
func TestConfigurationReference(t *testing.T) {
	documented := map[string][]string{}
	for _, line := range readPage(t, "configuration.md").lines {
		if m := keyRow.FindStringSubmatch(line); m != nil {
			if documented[m[1]] != nil {
				t.Errorf("%s is there twice", m[1])
			}
			documented[m[1]] = m[2:]
		}
	}
	eachKey("", reflect.TypeFor[config.Config](), func(key, kind string) {
		row, ok := documented[key]
		delete(documented, key)
		switch {
		case !ok:
			t.Errorf("configuration.md does not have %s, a %s", key, kind)
		case row[0] != kind:
			t.Errorf("%s is a %s, the page says %s", key, kind, row[0])
		case strings.TrimSpace(row[2]) == "" && key != "redis.password" && key != "redis.sentinel_password":
			t.Errorf("%s: the page does not say what it means", key)
		}
		if def := defaultOf(key); ok && def != "" && row[1] != "`"+def+"`" {
			t.Errorf("the default of %s is %s, the page says %s", key, def, row[1])
		}
	})
	for key := range documented {
		t.Errorf("configuration.md has %s, which is not a key", key)
	}
}

// eachKey calls f for every key below a type of the configuration, as the page
// writes it, with its type.
func eachKey(prefix string, t reflect.Type, f func(key, kind string)) {
	switch {
	case t == reflect.TypeFor[*float64]():
		f(prefix, "number")
	case t.Kind() == reflect.Pointer: // a map that may be left out
		f(prefix, "map")
		eachKey(prefix, t.Elem(), f)
	case t == reflect.TypeFor[config.Duration]():
		f(prefix, "duration")
	case t == reflect.TypeFor[config.Permits]():
		f(prefix, "text or map")
	case t.Kind() == reflect.Struct:
		for field := range t.Fields() {
			tag := field.Tag.Get("yaml")
			if tag == "-" {
				continue
			}
			name := strings.TrimPrefix(prefix+"."+tag, ".")
			if field.Type.Kind() == reflect.Map && field.Type.Elem().Kind() == reflect.Struct {
				name += map[string]string{"limits": ".NAME", "jobs": ".TYPE"}[tag]
				eachKey(name, field.Type.Elem(), f)
				continue
			}
			eachKey(name, field.Type, f)
		}
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		eachKey(prefix+"[]", t.Elem(), f)
	default:
		kinds := map[reflect.Kind]string{
			reflect.String: "text", reflect.Int: "number", reflect.Int64: "number", reflect.Bool: "bool", reflect.Slice: "list", reflect.Map: "map",
		}
		f(prefix, kinds[t.Kind()])
	}
}

// defaultOf returns the default that config.Default gives a key, or nothing for
// keys that it leaves out: what those mean is decided where they are used.
func defaultOf(key string) string {
	v := reflect.ValueOf(config.Default()).Elem()
	for name := range strings.SplitSeq(key, ".") {
		if v.Kind() != reflect.Struct {
			return ""
		}
		field, ok := v.Type().FieldByNameFunc(func(s string) bool {
			f, _ := v.Type().FieldByName(s)
			return f.Tag.Get("yaml") == name
		})
		if !ok {
			return ""
		}
		v = v.FieldByIndex(field.Index)
	}
	if v.IsZero() || v.Kind() == reflect.Map {
		return ""
	}
	if list, ok := v.Interface().([]string); ok { // as YAML has to have it
		return fmt.Sprintf("%q", list)
	}
	return fmt.Sprint(v.Interface())
}

var (
	metricName = regexp.MustCompile(`jobthrottle_[a-z_]+`)
	alertName  = regexp.MustCompile(`Jobthrottle[A-Z][A-Za-z]+`)
	quotedName = regexp.MustCompile(`fqName: "([^"]+)"`)
)

// TestMetricsAndAlerts: every metric and alert that a page names exists.
func TestMetricsAndAlerts(t *testing.T) {
	descs := make(chan *prometheus.Desc, 100)
	metrics.NewCollector(nil).Describe(descs)
	close(descs)
	var known []string
	for d := range descs {
		known = append(known, quotedName.FindStringSubmatch(d.String())[1])
	}
	rules, err := os.ReadFile("alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range readPages(t) {
		for _, line := range p.lines {
			for _, name := range metricName.FindAllString(line, -1) {
				if !slices.Contains(known, name) {
					t.Errorf("%s: no worker shows %s", p.path, name)
				}
			}
			for _, name := range alertName.FindAllString(line, -1) {
				if !strings.Contains(string(rules), "alert: "+name+"\n") {
					t.Errorf("%s: no alert is named %s", p.path, name)
				}
			}
		}
	}
}

// jobFields are the fields that a job line may have, as the error for another one lists them.
func jobFields(t *testing.T) []string {
	t.Helper()
	_, err := producer.ParseJob([]byte(`{"nonsense":1}`))
	if err == nil {
		t.Fatal("a field that does not exist was taken")
	}
	_, list, found := strings.Cut(err.Error(), "the keys are ")
	if !found {
		t.Fatalf("the error does not list the keys: %v", err)
	}
	return strings.FieldsFunc(strings.ReplaceAll(list, " and ", ","), func(r rune) bool { return r == ',' || r == ' ' })
}

// TestDefaults: configuration.md has the defaults that are decided where a key is used.
func TestDefaults(t *testing.T) {
	var job config.Job
	var limit config.Limit
	hold, err := job.HoldTime()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"jobs.TYPE.hold": brief(hold), "jobs.TYPE.max_pause": brief(job.LongestPause()), "jobs.TYPE.max_wait": brief(job.LongestWait()),
		"limits.NAME.lease": brief(throttle.DefaultLease), "limits.NAME.default_weight": fmt.Sprint(limit.WeightOf("anybody")),
		"pools[].queues": fmt.Sprintf("{ default: %d }", config.Pool{}.QueueWeights()["default"]),
	}
	for _, line := range readPage(t, "configuration.md").lines {
		if m := keyRow.FindStringSubmatch(line); m != nil && want[m[1]] != "" {
			if m[3] != "`"+want[m[1]]+"`" {
				t.Errorf("the default of %s is %s, the page says %s", m[1], want[m[1]], m[3])
			}
			delete(want, m[1])
		}
	}
	for key := range want {
		t.Errorf("configuration.md does not have %s", key)
	}
}

// brief writes a duration as people do: 15m, not 15m0s.
func brief(d time.Duration) string {
	return strings.TrimSuffix(strings.TrimSuffix(d.String(), "0s"), "0m")
}

// TestJobLines: library.md has the fields that a job line may have, and no others.
func TestJobLines(t *testing.T) {
	var fields []string
	row, in := regexp.MustCompile("^\\| `([a-z_]+)` \\|"), false
	for _, line := range readPage(t, "library.md").lines {
		in = in && strings.HasPrefix(line, "|") || strings.HasPrefix(line, "| field |")
		if m := row.FindStringSubmatch(line); in && m != nil {
			fields = append(fields, m[1])
		}
	}
	want := jobFields(t)
	slices.Sort(fields)
	slices.Sort(want)
	if !slices.Equal(fields, want) {
		t.Errorf("the page has %v, a job line %v", fields, want)
	}
}
