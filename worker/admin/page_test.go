package admin_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/hiddenapi"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
	"github.com/jobthrottle/jobthrottle/worker"
	"github.com/jobthrottle/jobthrottle/worker/admin"
)

// stuck are limits so slow that nothing changes while the page is open.
const stuck = `
limits:
  api:        { rate: 40/24h }
  api-worker: { rate: 30/24h, type: per_client }
  account:    { rate: 7/24h, key: payload.account }
pools: [ { name: default, concurrency: 8, queues: {default: 3, low: 1} } ]
jobs: { "http:request": { limits: [api, api-worker, account], hold: 0 } }
http: { allow_hosts: ["$API"] }
`

const patience = 20 * time.Second

// openPage enqueues jobs, lets the limits stop them, and opens the page.
func openPage(t *testing.T) (*site, *browser) {
	b := openBrowser(t)
	s := newSite(t, 2, stuck, token)
	s.awaitCreated("api", "api-worker")
	s.enqueue(12, "default", "acme")
	s.enqueue(20, "low", "globex")
	s.await(patience, func() (bool, string) {
		lines, err := s.first.Inspector().Lines(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		parked := int64(0)
		for _, l := range lines {
			parked += l.Parked
		}
		return parked == 12+20-2*7 && s.api.Report().Requests == 2*7, fmt.Sprintf("%d parked: %v", parked, lines)
	})
	b.resize(1280, 900, "light")
	b.do(chromedp.Navigate("http://" + s.addr + "/"))
	b.until(patience, `document.getElementById("live").dataset.state === "ok"`)
	return s, b
}

// shown is the text of an element of a limit's card.
func shown(b *browser, limit, selector string) string {
	b.t.Helper()
	return value[string](b, fmt.Sprintf(`document.querySelector('[data-key=%q]').querySelector(%q).textContent`, limit, selector))
}

// TestPageMatchesRedis: what the page shows is what Redis and the API know.
func TestPageMatchesRedis(t *testing.T) {
	s, b := openPage(t)
	if requests := s.api.Report().Requests; requests != 14 {
		t.Fatalf("the API saw %d requests, want 14", requests)
	}
	for _, name := range []string{"api", "api-worker"} {
		u := s.usage(name)
		if u.Used != 14 {
			t.Errorf("%s: Redis has %d permits used, want 14", name, u.Used)
		}
		for selector, want := range map[string]string{
			`[data-show="used"]`: fmt.Sprint(u.Used), `[data-show="available"]`: fmt.Sprint(u.Available), `[data-show="reserved"]`: fmt.Sprint(u.Reserved),
			`[data-show="allowed"]`: fmt.Sprint(admin.Allowed(u)), `.about`: u.Rate.String(),
		} {
			if got := shown(b, name, selector); !strings.HasPrefix(got, want) {
				t.Errorf("%s %s: the page shows %q, Redis has %q", name, selector, got, want)
			}
		}
	}
	workers := s.usage("api-worker").PerClient
	for _, c := range workers {
		got := shown(b, "api-worker", fmt.Sprintf(`.shares [data-key="%s"]`, c.ID))
		if want := fmt.Sprintf("%d of 30", c.Used); !strings.HasSuffix(got, want) {
			t.Errorf("worker %s: the page shows %q, Redis has %q", c.ID, got, want)
		}
	}
	if len(workers) == 0 {
		t.Error("no worker has used its share")
	}
	for account, parked := range map[string]int{"acme": 5, "globex": 13} {
		got := shown(b, "account", fmt.Sprintf(`[data-key="account:%s"]`, account))
		for _, want := range []string{account, fmt.Sprintf("%d parked", parked), "7 of 7 used"} {
			if !strings.Contains(got, want) {
				t.Errorf("account %s: the page shows %q, want %q", account, got, want)
			}
		}
	}
	for queue, parked := range map[string]string{"default": "5", "low": "13"} {
		row := func(label string) string {
			return value[string](b, fmt.Sprintf(`document.querySelector('#pools tr[data-key=%q] [data-label=%q]').textContent`, queue, label))
		}
		if row("parked") != parked || row("to retry") != "0" {
			t.Errorf("queue %s: the page shows %s parked and %s to retry, want %s and 0", queue, row("parked"), row("to retry"), parked)
		}
	}
	if got := value[string](b, `document.getElementById("parked").textContent`); got != "18" {
		t.Errorf("%s parked jobs, want 18", got)
	}
	parked, err := s.first.Inspector().Parked(t.Context(), "account:acme", 0, 1)
	if err != nil || len(parked) != 1 {
		t.Fatal(parked, err)
	}
	value[bool](b, `document.getElementById("task").focus() ?? true`)
	b.keys(parked[0].ID, kb.Enter)
	b.until(patience, `document.getElementById("explanation").textContent.includes('limit "account:acme" holds it')`)
	if said := b.said(); said != nil {
		t.Errorf("the console says: %q", said)
	}
}

// TestPageChanges: with the keyboard alone, a wrong token changes nothing, the
// right one does and is not asked for again.
func TestPageChanges(t *testing.T) {
	s, b := openPage(t)
	press := func(label string) {
		t.Helper()
		button := fmt.Sprintf(`document.querySelector('button[aria-label=%q]')`, label)
		b.until(patience, button+" !== null")
		value[bool](b, button+`.focus() ?? true`)
		b.keys(kb.Enter)
		b.until(patience, `document.getElementById("change").open`)
	}
	closed := func(label string) {
		t.Helper()
		b.until(patience, `!document.getElementById("change").open`)
		if got := value[string](b, `document.activeElement.getAttribute("aria-label") ?? document.activeElement.tagName`); got != label {
			t.Errorf("the focus is on %q, want %q", got, label)
		}
	}

	before := s.state()
	press("Change api")
	b.keys("60/24h", kb.Tab, kb.Tab, "wrong", kb.Enter)
	b.until(patience, `document.getElementById("wrong").textContent.includes("admin.token")`)
	if u := s.usage("api"); u.Rate.Permits != 40 || fmt.Sprint(s.state()) != fmt.Sprint(before) {
		t.Fatalf("a wrong token has changed the limit: %+v", u)
	}
	if said := b.said(); len(said) != 1 || !strings.Contains(said[0], "401") {
		t.Errorf("the console says %q, want the 401 alone", said)
	}
	b.until(patience, `sessionStorage.length === 0`)
	value[bool](b, `document.getElementById("token").select() ?? true`)
	b.keys(token, kb.Enter)
	closed("Change api")
	if u := s.usage("api"); u.Rate.String() != "60/24h" || u.Used != 14 {
		t.Errorf("after the change: %s, %d used", u.Rate, u.Used)
	}
	b.until(patience, `document.querySelector('[data-key="api"] .about').textContent.startsWith("60/24h (the configuration says 40/24h)")`)

	press("Pause api")
	b.keys("1h", kb.Enter)
	closed("Pause api")
	if u := s.usage("api"); u.Paused < 59*time.Minute || u.Paused > time.Hour {
		t.Errorf("paused for %v, want an hour", u.Paused)
	}
	b.until(patience, `document.querySelector('[data-key="api"] .badges').textContent.includes("paused for 59 m")`)

	press("Resume api")
	b.keys(kb.Enter)
	b.until(patience, `!document.getElementById("change").open`)
	if u := s.usage("api"); u.Paused != 0 {
		t.Errorf("still paused for %v", u.Paused)
	}
	b.until(patience, `!document.querySelector('[data-key="api"] .badges').textContent.includes("paused")`)

	press("Pause account:acme")
	b.keys("soon", kb.Enter)
	b.until(patience, `document.getElementById("wrong").textContent.includes("30s")`)
	if u := s.usage("account:acme"); u.Paused != 0 {
		t.Errorf("paused for %v", u.Paused)
	}
	b.said() // the 400
	b.keys(kb.Escape)
	closed("Pause account:acme")
	if said := b.said(); said != nil {
		t.Errorf("the console says: %q", said)
	}
}

// TestPageAsksBelowCost: the page tells which jobs a lower rate would strand, and makes the
// change only when it is sent once more, as it was.
func TestPageAsksBelowCost(t *testing.T) {
	b := openBrowser(t)
	s := newCostly(t, "")
	b.resize(1280, 900, "light")
	b.do(chromedp.Navigate("http://" + s.addr + "/"))
	const button = `document.querySelector('button[aria-label="Change api"]')`
	b.until(patience, button+" !== null")
	value[bool](b, button+`.focus() ?? true`)
	b.keys(kb.Enter)
	b.until(patience, `document.getElementById("change").open`)
	b.keys("4/1h", kb.Tab, kb.Tab, token, kb.Enter)
	asks := func(jobs string) {
		t.Helper()
		b.until(patience, fmt.Sprintf(`document.getElementById("wrong").textContent.includes(%q)`, jobs))
		b.until(patience, `document.getElementById("submit").textContent === "Change all the same"`)
		if u := s.usage("api"); u.Rate.Permits != 10 {
			t.Fatalf("nobody has said yes, and the limit is %s", u.Rate)
		}
		if words := value[string](b, `document.getElementById("wrong").textContent`); strings.Contains(words, `"yes"`) {
			t.Errorf("a person is told what a program would send: %s", words)
		}
	}
	asks("2 jobs that wait cost more")
	value[bool](b, `document.getElementById("rate").select() ?? true`)
	b.keys("1/1h") // another change than the one that was asked about
	plain := func() {
		t.Helper()
		b.until(patience, `document.getElementById("submit").textContent === "Change" && document.getElementById("wrong").textContent === ""`)
	}
	plain()
	b.keys(kb.Enter)
	asks("3 jobs that wait cost more")
	b.keys("x", kb.Backspace) // the same once more: what the button says is what it does
	plain()
	b.keys(kb.Enter)
	asks("3 jobs that wait cost more")
	b.keys(kb.Enter)
	b.until(patience, `!document.getElementById("change").open`)
	if u := s.usage("api"); u.Rate.String() != "1/1h" {
		t.Errorf("after the yes: %s", u.Rate)
	}
	if said := b.said(); len(said) != 3 || !strings.Contains(said[0], "409") {
		t.Errorf("the console says %q, want three times 409", said)
	}
}

// TestPageCancels: what became of a change whose dialog was cancelled is told beside the next
// dialog, which stays as it is.
func TestPageCancels(t *testing.T) {
	b := openBrowser(t)
	s := newCostly(t, "")
	b.resize(1280, 900, "light")
	b.do(chromedp.Navigate("http://" + s.addr + "/"))
	open := func() {
		t.Helper()
		const button = `document.querySelector('button[aria-label="Change api"]')`
		b.until(patience, button+" !== null")
		value[bool](b, button+`.focus() ?? true`)
		b.keys(kb.Enter)
		b.until(patience, `document.getElementById("change").open`)
	}
	open()
	b.keys("20/1h", kb.Tab, kb.Tab, token)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(s.rdb.Do(t.Context(), "CLIENT", "PAUSE", 60_000, "WRITE").Err()) // scripts too
	b.keys(kb.Enter)
	b.until(patience, `document.getElementById("submit").disabled && document.getElementById("rate").readOnly`)
	value[bool](b, `document.getElementById("cancel").click() ?? true`)
	open()
	b.keys("30/1h")
	check(s.rdb.Do(t.Context(), "CLIENT", "UNPAUSE").Err())
	b.until(patience, `document.getElementById("said").textContent.includes("Change: api is done")`)
	if open := value[bool](b, `document.getElementById("change").open && !document.getElementById("submit").disabled`); !open {
		t.Error("the answer to the change before has closed the dialog")
	}
	if u := s.usage("api"); u.Rate.Permits != 20 {
		t.Errorf("the limit is %s", u.Rate)
	}
}

// TestPageJobs: using only the keyboard, archived jobs are listed, shown without their secrets,
// brought back and deleted; many only after confirmation.
func TestPageJobs(t *testing.T) {
	b := openBrowser(t)
	s := newSite(t, 1, stuck, token)
	s.archive(9, "mail:send", "idle")
	b.resize(360, 780, "dark")
	b.do(chromedp.Navigate("http://" + s.addr + "/"))
	b.until(patience, `document.getElementById("live").dataset.state === "ok"`)
	press := func(selector string, keys ...string) {
		t.Helper()
		b.until(patience, fmt.Sprintf(`document.querySelector(%q)?.checkVisibility()`, selector))
		value[bool](b, fmt.Sprintf(`document.querySelector(%q).focus() ?? true`, selector))
		b.keys(keys...)
	}
	count := func(n int) {
		t.Helper()
		b.until(patience, fmt.Sprintf(`document.getElementById("jobs-panel").ariaBusy !== "true" && document.querySelectorAll("#jobs-rows tr").length === %d`, n))
	}
	press(`input[value="waiting"]`, kb.ArrowRight, kb.ArrowRight)
	count(9)
	if wide := value[int](b, `document.documentElement.scrollWidth`); wide > 360 {
		t.Errorf("the list is %d pixels wide", wide)
	}
	press(`#jobs-rows tr button`, kb.Enter)
	b.until(patience, `document.getElementById("job").open`)
	if shown := value[string](b, `document.getElementById("job").textContent`); !strings.Contains(shown, "acme") || strings.Contains(shown, "s3cr3t") || !strings.Contains(shown, "is archived") {
		t.Errorf("the job shows as %q", shown)
	}
	press("#job-retry", kb.Enter)
	b.until(patience, `document.getElementById("change").open`)
	b.keys(token, kb.Enter)
	b.until(patience, `!document.getElementById("change").open`)
	count(8)
	if q := s.queueInfo("idle"); q.Pending != 1 || q.Archived != 8 {
		t.Errorf("%d pending, %d archived", q.Pending, q.Archived)
	}
	press(`#jobs-rows tr .pick input`, " ")
	press("#delete-picked", kb.Enter)
	b.until(patience, `document.getElementById("change").open`)
	b.keys(kb.Enter)
	b.until(patience, `!document.getElementById("change").open`)
	count(7)
	press("#delete-all", kb.Enter)
	b.until(patience, `document.getElementById("change").open`)
	b.keys("yes", kb.Enter)
	b.until(patience, `document.getElementById("wrong").textContent.includes("Write delete")`)
	if q := s.queueInfo("idle"); q.Archived != 7 {
		t.Errorf("%d are left, though nobody confirmed", q.Archived)
	}
	value[bool](b, `document.getElementById("confirm").select() ?? true`)
	b.keys("delete", kb.Enter)
	b.until(patience, `!document.getElementById("change").open`)
	count(0)
	if q := s.queueInfo("idle"); q.Pending != 1 || q.Archived != 0 {
		t.Errorf("%d pending, %d archived", q.Pending, q.Archived)
	}
	if said := b.said(); said != nil {
		t.Errorf("the console says: %q", said)
	}
}

// TestPageEverywhere: phone and desk, light and dark; nothing is cut off, from
// elsewhere, or without a name for those who cannot see it.
func TestPageEverywhere(t *testing.T) {
	s, b := openPage(t)
	backgrounds := map[string]bool{}
	for _, width := range []int64{320, 360, 390, 768, 1280} {
		for _, scheme := range []string{"light", "dark"} {
			b.resize(width, 844, scheme)
			b.until(patience, fmt.Sprintf(`innerWidth === %d && matchMedia("(prefers-color-scheme: %s)").matches && document.querySelectorAll(".plot canvas").length === 2 && document.querySelectorAll(".spark canvas").length === 2`, width, scheme))
			if scrolls := value[int](b, `document.documentElement.scrollWidth`); int64(scrolls) > width {
				t.Errorf("%d pixels, %s: the page is %d wide", width, scheme, scrolls)
			}
			backgrounds[value[string](b, `getComputedStyle(document.body).backgroundColor`)] = true
		}
	}
	if len(backgrounds) != 2 {
		t.Errorf("light and dark have %d backgrounds", len(backgrounds))
	}
	if foreign := value[[]string](b, fmt.Sprintf(`performance.getEntriesByType("resource").map((e) => e.name).filter((n) => !n.startsWith("http://%s/"))`, s.addr)); len(foreign) > 0 {
		t.Errorf("loaded from elsewhere: %q", foreign)
	}
	tree, err := chromedp.Call(b.ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]int{}
	for _, node := range tree.Nodes {
		if node.Ignored || node.Role == nil {
			continue
		}
		role := strings.Trim(string(node.Role.Value), `"`)
		if !slices.Contains([]string{"button", "textbox", "meter", "image", "checkbox", "heading", "article", "table"}, role) {
			continue
		}
		if node.Name == nil || len(node.Name.Value) <= len(`""`) {
			t.Errorf("a %s without a name: %s", role, node.NodeID)
			continue
		}
		named[role]++
	}
	for _, role := range []string{"button", "textbox", "meter", "image", "heading", "article", "table"} {
		if named[role] == 0 {
			t.Errorf("no %s in what screen readers see: %v", role, named)
		}
	}
	if said := b.said(); said != nil {
		t.Errorf("the console says: %q", said)
	}
}

// TestPageBracket: of a limit that adapts, the page tells what is known of its API, and
// remembers how it came to be known.
func TestPageBracket(t *testing.T) {
	limit, err := hiddenapi.NewLimit(hiddenapi.Sliding, 20, time.Second/4, 0)
	if err != nil {
		t.Fatal(err)
	}
	api, err := hiddenapi.Start(hiddenapi.NewHidden(limit))
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	b := openBrowser(t)
	s := newSite(t, 1, fmt.Sprintf(`
limits: { hidden: { rate: 4/250ms, adapt: { min: 1, max: 1000 } }, fixed: { rate: 100/1s } }
pools: [ { name: default, concurrency: 30 } ]
jobs: { "http:request": { limits: [hidden, fixed] } }
http: { allow_hosts: [%q] }
`, strings.TrimPrefix(api.URL(), "http://")), token)
	b.resize(1280, 900, "light")
	b.do(chromedp.Navigate("http://" + s.addr + "/"))
	client := asynq.NewClientFromRedisClient(s.rdb)
	for range 400 {
		if _, err := client.Enqueue(asynq.NewTask(worker.HTTPTaskType, fmt.Appendf(nil, `{"url": %q}`, api.URL()))); err != nil {
			t.Fatal(err)
		}
	}
	s.await(patience, func() (bool, string) {
		q := s.queueInfo("default")
		return q.Pending+q.Active+q.Retry == 0, fmt.Sprintf("%d pending, %d waiting", q.Pending, q.Retry)
	})
	var learnt operate.Learnt // what was told last may still be on its way
	s.await(patience, func() (bool, string) {
		var adapts bool
		if learnt, adapts, err = operate.NewFleet(s.rdb).Learnt(t.Context(), "hidden"); err != nil || !adapts || learnt.Refused == 0 {
			t.Fatalf("%+v, adapts %v, %v: want that something was refused", learnt, adapts, err)
		}
		want := fmt.Sprintf("Known of what its API takes: %s; %d of %d refused, cut ", learnt.Known(), learnt.Refused, learnt.Taken+learnt.Refused)
		got := value[string](b, `document.querySelector('[data-key="hidden"] .learnt').textContent`)
		return strings.Contains(got, want), fmt.Sprintf("the page says %q, want %q", got, want)
	})
	for name, want := range map[string]bool{"hidden": true, "fixed": false} {
		for _, part := range []string{".learnt", ".key.bracket"} {
			if got := value[bool](b, fmt.Sprintf(`document.querySelector('[data-key=%q]').querySelector(%q).offsetWidth > 0`, name, part)); got != want {
				t.Errorf("%s of %s is to be seen: %v, want %v", part, name, got, want)
			}
		}
	}
	_, body := s.ask(asked{method: http.MethodGet, path: "/api/history"})
	var past map[string][][]int64
	if err := json.Unmarshal([]byte(body), &past); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	points := past["hidden"]
	known := func(p []int64) bool { return p[6] > 0 }
	if len(points) < 3 || known(points[0]) || !slices.ContainsFunc(points, known) || points[len(points)-1][6] != learnt.Most {
		t.Errorf("the history is %v, want that nothing was known at first, something after it, and at last that the API takes %d at most", points, learnt.Most)
	}
	if said := b.said(); said != nil {
		t.Errorf("the console says: %q", said)
	}
}

// TestPageWithoutNews: the page says so when the worker is gone.
func TestPageWithoutNews(t *testing.T) {
	s, b := openPage(t)
	if err := s.server.Close(); err != nil {
		t.Fatal(err)
	}
	b.until(patience, `document.getElementById("live").dataset.state === "lost" && document.getElementById("live").textContent.startsWith("no news")`)
	b.until(patience, `document.getElementById("wrong-section").dataset.worst === "bad" && document.getElementById("wrong-title").textContent.startsWith("No news")`)
}

// TestPageOfOtherQueues: jobs in a queue that nobody serves are the first thing that the page says, although this worker does not
// serve it either; it counts the archived and pending jobs of such queues, too; and the page goes on if the user of Redis may not read who the workers are.
func TestPageOfOtherQueues(t *testing.T) {
	s, b := openPage(t)
	if _, err := asynq.NewClientFromRedisClient(s.rdb).Enqueue(asynq.NewTask("x", nil), asynq.Queue("misspelt")); err != nil {
		t.Fatal(err)
	}
	s.archive(2, "mail:send", "elsewhere")
	b.until(patience, `document.getElementById("wrong-list").textContent.includes("No worker serves queue misspelt, and 1 job waits there")`)
	b.until(patience, `document.getElementById("wrong-list").textContent.includes("2 jobs failed for good and are archived")`)
	b.until(patience, `document.getElementById("archived").textContent === "2" && document.getElementById("pending").textContent === "1"`)
	b.until(patience, `document.getElementById("pools").textContent.includes("Queues that this worker does not serve")`)
	if err := s.rdb.Do(t.Context(), "ACL", "SETUSER", "default", "-zrevrangebyscore").Err(); err != nil {
		t.Fatal(err)
	}
	b.until(patience, `document.getElementById("workers-about").textContent.startsWith("The workers cannot be read")`)
	b.until(patience, `document.getElementById("live").dataset.state === "ok"`)
}

// busy is a fleet with something to see.
const busy = `
limits:
  example-api:        { rate: 60/1s }
  example-api-worker: { rate: 25/1s, type: per_client }
  example-account:    { rate: 30/1s, key: payload.account }
pools:
  - { name: default, concurrency: 20, queues: {critical: 6, default: 3, low: 1} }
  - { name: reports, concurrency: 5, queues: {reports: 1} }
jobs:
  "http:request": { limits: [example-api, example-api-worker, example-account] }
  "report:":      { limits: [example-api] }
http: { allow_hosts: ["$API"] }
`

// TestScreenshot makes the pictures in docs again, or in the directory that the
// variable names:
//
//	JOBTHROTTLE_SCREENSHOT=1 go test -count=1 -run TestScreenshot ./worker/admin
func TestScreenshot(t *testing.T) {
	dir := os.Getenv(screenshotEnv)
	switch dir {
	case "":
		t.Skipf("set %s=1 to make docs/dashboard.png and the others again", screenshotEnv)
	case "1":
		dir = "../../docs"
	}
	b := openBrowser(t)
	s := newSite(t, 3, busy, token)
	s.awaitCreated("example-api", "example-api-worker")
	client := asynq.NewClientFromRedisClient(s.rdb)
	for i := range 40 { // misspelt
		if _, err := client.Enqueue(asynq.NewTask("mial:send", []byte("{}")), asynq.TaskID(fmt.Sprint("mail-", i))); err != nil {
			t.Fatal(err)
		}
	}
	s.archive(7, "report:daily", "reports")
	s.enqueue(3900, "default", "acme")
	s.enqueue(2400, "critical", "globex")
	s.enqueue(700, "low", "initech")
	b.resize(1280, 900, "light")
	b.do(chromedp.Navigate("http://" + s.addr + "/"))
	s.awaitRequests(1200)
	pause := func(name string, d time.Duration) {
		l, _, err := s.first.Limiter(name)
		if err == nil {
			err = l.Pause(t.Context(), d)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	pause("example-api", 5*time.Second)
	s.awaitRequests(3000)
	pause("example-account:globex", 75*time.Second)
	s.awaitRequests(3300)
	b.until(patience, `document.querySelector('[data-key="example-account:globex"] .badge.paused').textContent !== ""`)
	b.screenshot(dir + "/dashboard.png")
	value[bool](b, `document.querySelector('input[value="archived"]').click() ?? true`)
	b.until(patience, `document.querySelectorAll("#jobs-rows tr").length === 7`)
	value[bool](b, `document.querySelector("#jobs-rows button").click() ?? true`)
	b.until(patience, `document.getElementById("job").open`)
	b.screen(dir + "/dashboard-job.png")
	if dir != "../../docs" { // for who works on the page
		b.keys(kb.Escape)
		for _, width := range []int64{360, 1280} {
			b.resize(width, 780, "dark")
			b.until(patience, fmt.Sprintf("innerWidth === %d", width))
			b.screenshot(fmt.Sprintf("%s/dark-%d.png", dir, width))
		}
	}
}

// awaitRequests waits until the API has seen n requests.
func (s *site) awaitRequests(n int) {
	s.tb.Helper()
	s.await(2*time.Minute, func() (bool, string) {
		got := s.api.Report().Requests
		return got >= n, fmt.Sprintf("%d of %d requests", got, n)
	})
}

// TestPageBelowPath: a program serves the page below a path of its own.
func TestPageBelowPath(t *testing.T) {
	b := openBrowser(t)
	s := newSite(t, 1, stuck, token)
	s.awaitCreated("api")
	mux := http.NewServeMux()
	mux.Handle("/limits/", http.StripPrefix("/limits", admin.NewHandler(s.first, admin.Options{Token: token})))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	b.do(chromedp.Navigate(server.URL + "/limits"))
	b.until(patience, `document.getElementById("live").dataset.state === "ok"`)
	if got, want := shown(b, "api", ".about"), s.usage("api").Rate.String(); !strings.HasPrefix(got, want) {
		t.Errorf("the page shows %q, want %q", got, want)
	}
	if said := b.said(); len(said) > 0 {
		t.Errorf("the page complains: %q", said)
	}
}
