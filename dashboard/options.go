package dashboard

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/store"
)

// Options are the options of a [Dashboard]. Only Registry is required.
type Options struct {
	// Registry has the pipelines and limiters that are shown.
	Registry *registry.Registry
	// Events has what has happened. It should be the Listener of the Registry, or one of them. If nil, no events of
	// executions are shown.
	Events *Events
	// Watchers are the configuration files that are shown, and that the action "reload" reads.
	Watchers []*reload.Watcher
	// Stores are the stores whose health is shown, by the names that the pages give them.
	Stores map[string]*store.Store
	// Jobs has the limiters of throttled jobs. If nil, the pages have no part for jobs.
	Jobs Jobs

	// Authorize decides about each [Action]. It returns the name of the user, which is logged and recorded as an event,
	// or an error, whose text the user gets with the status 403. It is called before the page that asks for confirmation,
	// and again before the action. r must not be kept. It must be safe for concurrent use. If nil, the dashboard is
	// read-only and the pages have no buttons for actions.
	Authorize func(r *http.Request, a Action) (who string, err error)
	// ShowKeys shows the keys of partitioned limiters and of throttled jobs, which can be addresses or names of users. If
	// false, a page has a hash in place of a key. The hash of a key is the same on all pages of this Dashboard and in the
	// answers of the check.
	ShowKeys bool
	// KeyHash makes these hashes. A program that writes hashes of the same KeyHash to its log can find a key of the pages
	// there. If nil, it is a new one.
	KeyHash *KeyHash
	// Check answers which limits apply to a request, and what each would decide now, without taking permits. A gateway
	// has one. r is not a request that was received: it has the method, the host, the URL, the headers and the remote
	// address that the user of the form or of GET check gave, and a context that ends after 5 s, which Check must heed. It must
	// be safe for concurrent use. If nil, the check asks single limiters only.
	Check func(r *http.Request) ([]CheckResult, error)

	// Instance is the name of this process on the pages, such as the name of the host or the pod. If empty, it is the name
	// of the host and the number of the process.
	Instance string
	// Logger writes a line for each action and each refused action. If nil, it is [slog.Default].
	Logger *slog.Logger
	// MaxStreams is how many pages can be updated by a stream at a time. Further pages ask every 5 s instead. 0 means 64.
	// If -1, there are no streams and all pages ask.
	MaxStreams int
}

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil.
func (o Options) Validate() error {
	var p validate.Problems
	if o.Registry == nil {
		p.Add("Registry", nil, "must not be nil")
	}
	for i, w := range o.Watchers {
		if w == nil {
			p.Add(fmt.Sprintf("Watchers[%d]", i), nil, "must not be nil")
		}
	}
	for name, s := range o.Stores {
		if s == nil {
			p.Add(fmt.Sprintf("Stores[%s]", name), nil, "must not be nil")
		}
	}
	if o.Jobs != nil && isnil.Value(o.Jobs) {
		p.Add("Jobs", nil, "must not be a nil pointer")
	}
	if o.KeyHash != nil && len(o.KeyHash.secret) == 0 { // without a secret, the hash of an address tells the address
		p.Add("KeyHash", nil, "must be made with NewKeyHash")
	}
	return p.Err("dashboard")
}

// keyText returns what the pages show of a key.
func (o *Options) keyText(key string) string {
	if o.ShowKeys || key == "" {
		return key
	}
	return o.KeyHash.Hash(key)
}

// The actions: what [Action.Name] can be.
const (
	ActionReload      = "reload"       // read a configuration file again; the target is its path
	ActionIsolate     = "isolate"      // open a circuit until it is closed by hand; the target is its source, such as orders/CircuitBreaker
	ActionClose       = "close"        // close a circuit; the target is as for isolate
	ActionOverride    = "override"     // give a limiter other limits for a while; the target is its name
	ActionEndOverride = "end-override" // give a limiter its configured limits back; the target is its name
	ActionRelease     = "release"      // free the slot of a throttled job; the target is the limiter, such as semaphore/imports or semaphore/imports/KEY
)

// An Action is what a user of the dashboard wants to do.
type Action struct {
	Name   string // one of ActionReload to ActionRelease
	Target string // what it is done to
}

// A KeyHash hashes the keys of limiters with a random secret of its own. Without a secret, the hash of an address would
// tell the address to everyone who tries all addresses. The zero KeyHash is not usable; make one with [NewKeyHash]. A
// KeyHash is safe for concurrent use.
type KeyHash struct{ secret []byte }

// NewKeyHash returns a KeyHash with a new secret.
func NewKeyHash() *KeyHash {
	h := &KeyHash{secret: make([]byte, 32)}
	_, _ = rand.Read(h.secret) // it never fails
	return h
}

// Hash returns the hash of a key, such as "#2c1b39af00a3".
func (h *KeyHash) Hash(key string) string {
	m := hmac.New(sha256.New, h.secret)
	_, _ = m.Write([]byte(key))
	return "#" + hex.EncodeToString(m.Sum(nil)[:6])
}
