// The driver of the browser starts processes.

//go:build !js

package browsertest

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/remote"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/tools/testserver"
)

// axe is axe-core, which finds what makes a page hard to use for people with disabilities.
//
//go:embed testdata/axe.min.js
var axe string

// A tab is a page in the browser.
type tab struct {
	*seen

	t   *testing.T
	ctx context.Context
}

// seen is what was seen on a tab.
type seen struct {
	mu       sync.Mutex
	problems []string // errors of the console, exceptions, violations of the content security policy
	hosts    map[string]bool
}

// newTab opens a tab in the browser.
func newTab(t *testing.T, chromium *testserver.Server) *tab {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = remote.NewAllocator(ctx, chromium.URL)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)

	return open(t, ctx)
}

// another opens a further tab in the browser of p.
func (p *tab) another() *tab {
	p.t.Helper()
	ctx, cancel := chromedp.NewContext(p.ctx)
	p.t.Cleanup(cancel)
	return open(p.t, ctx)
}

// in returns the tab p for a subtest.
func (p *tab) in(t *testing.T) *tab { return &tab{t: t, ctx: p.ctx, seen: p.seen} }

func open(t *testing.T, ctx context.Context) *tab {
	t.Helper()
	p := &tab{t: t, ctx: ctx, seen: &seen{hosts: make(map[string]bool)}}
	require.NoError(t, chromedp.Listen(ctx, p.listen))
	call(p, network.Enable, network.EnableParams{})
	call(p, log.Enable, struct{}{})
	call(p, runtime.Enable, struct{}{})
	return p
}

func (p *tab) listen(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		p.problems = append(p.problems, fmt.Sprintf("exception: %s at %s:%d", e.ExceptionDetails.Text, e.ExceptionDetails.URL, e.ExceptionDetails.LineNumber))
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			p.problems = append(p.problems, fmt.Sprintf("log: %s %s", e.Entry.Text, e.Entry.URL))
		}
	case *network.EventRequestWillBeSent:
		if u, err := url.Parse(e.Request.URL); err == nil && u.Scheme != "data" {
			p.hosts[u.Host] = true
		}
	}
}

// run returns the result of an action, which must succeed within half a minute.
func run[T any](p *tab, a chromedp.Action[T]) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, 30*time.Second)
	defer cancel()
	result, err := chromedp.Run(ctx, a)
	require.NoError(p.t, err)
	return result
}

// do runs actions, each of which must succeed.
func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	for _, a := range actions {
		run(p, a)
	}
}

// call calls a command of the browser.
func call[P, R any](p *tab, cmd cdp.Command[P, R], params P) R {
	p.t.Helper()
	result, err := chromedp.Call(p.ctx, cmd, params)
	require.NoError(p.t, err)
	return result
}

// eval returns the value of a JavaScript expression.
func eval[T any](p *tab, expression string) T {
	p.t.Helper()
	return run(p, chromedp.Evaluate[T](expression))
}

// becomes waits until a JavaScript expression is true, also across pages.
func (p *tab) becomes(expression string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, 25*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		// While another page is loaded, there is none to evaluate on.
		is, err := chromedp.Run(ctx, chromedp.Evaluate[bool](expression))
		if is {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			p.t.Fatalf("not true in time: %s (%v); the page says: %s", expression, err, eval[string](p, "document.body.innerText"))
		}
	}
}

// size sets the size of the window, and whether the user prefers dark colors.
func (p *tab) size(width int64, dark bool) {
	p.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	call(p, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 900, DeviceScaleFactor: 1, Mobile: width < 600})
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
}

// scripts turns JavaScript of pages that are loaded from now on on or off.
func (p *tab) scripts(on bool) {
	p.t.Helper()
	call(p, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on})
}

// mustBeSound fails the test where the page has reported a problem or asked another server for something.
func (p *tab) mustBeSound(host string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Empty(p.t, p.problems)
	for h := range p.hosts {
		require.Equal(p.t, host, h, "the page asked another server")
	}
}

// mustBeAccessible fails the test where axe finds a violation.
func (p *tab) mustBeAccessible() {
	p.t.Helper()
	// The content security policy of the page does not hold for scripts of the debugger.
	if !eval[bool](p, `"axe" in window`) {
		eval[bool](p, axe+";\ntrue")
	}
	found := run(p, chromedp.Evaluate[string](`axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}).then(r => JSON.stringify(
		r.violations.map(v => ({id: v.id, help: v.help, nodes: v.nodes.slice(0, 3).map(n => n.html + " " + n.failureSummary)}))))`, chromedp.EvalAwaitPromise))
	var violations []any
	require.NoError(p.t, json.Unmarshal([]byte(found), &violations))
	if len(violations) > 0 {
		text, err := json.MarshalIndent(violations, "", "  ")
		require.NoError(p.t, err)
		p.t.Errorf("axe: %s", text)
	}
}

// mustFit fails the test where the page is wider than the window.
func (p *tab) mustFit() {
	p.t.Helper()
	if eval[bool](p, "document.documentElement.scrollWidth <= document.documentElement.clientWidth") {
		return
	}
	p.t.Errorf("the page is wider than the window: %s", eval[string](p, `[...document.querySelectorAll("body *")]
		.filter(e => e.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
		.slice(0, 5).map(e => e.outerHTML.slice(0, 120)).join("\n")`))
}

// picture writes a picture of the whole page to the directory that WEIR_SCREENSHOTS names, if it names one.
func (p *tab) picture(name string) {
	p.t.Helper()
	dir := os.Getenv("WEIR_SCREENSHOTS")
	if dir == "" {
		return
	}
	png := run(p, chromedp.FullScreenshot(100))
	name = strings.NewReplacer("/", "-", " ", "-").Replace(name)
	require.NoError(p.t, os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644))
}
