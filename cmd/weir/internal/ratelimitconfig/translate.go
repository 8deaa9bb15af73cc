package ratelimitconfig

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"

	"go.yaml.in/yaml/v4"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/regularfile"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/store"

	"github.com/weir-go/weir/cmd/weir/internal/fileconfig"
	"github.com/weir-go/weir/cmd/weir/internal/rlsconfig"
)

// Options say what a file of weir is made of.
type Options struct {
	Dir          string         // the directory with the files of the other server
	MergeDomains bool           // a domain can be in several of them
	Mode         rlsconfig.Mode // of rate_limit; DefaultMode: that of the file Config, or exact
	// Config is a file of weir with everything but the domains. Without one, the counters are in Redis, in Postgres or,
	// if both are empty, in the process.
	Config, Redis, Postgres string
}

// Name returns what messages call the file.
func (o Options) Name() string {
	if o.Config == "" {
		return o.Dir
	}
	return o.Config + " with " + o.Dir
}

// CheckStore checks Redis and Postgres, which are flags: an error in the file that is made of them would have a line that
// the user has not written.
func (o Options) CheckStore() error {
	for flag, s := range map[string]fileconfig.Store{"-redis": {Redis: o.Redis}, "-postgres": {Postgres: o.Postgres}} {
		if wrong, ok := errors.AsType[*weir.OptionsError](s.Validate()); ok && s != (fileconfig.Store{}) {
			return fmt.Errorf("%s %s", flag, wrong.Fields[0].Problem)
		}
	}
	return nil
}

// Reader returns a function that returns the file of weir, for [reload.Options.Read]. It makes the file again only when one of its
// sources has changed. Errors in a file are a [*reload.FileError], or several that are joined. It must not be called concurrently.
func (o Options) Reader() func() ([]byte, error) {
	var last [sha256.Size]byte
	var made []byte
	var madeErr error
	return func() ([]byte, error) {
		files, err := ReadFiles(o.Dir)
		if err != nil {
			return nil, err
		}
		var config []byte
		if o.Config != "" {
			if config, err = regularfile.Read(o.Config, fileconfig.MaxSize); err != nil {
				return nil, named(o.Config, err)
			}
		}
		h := sha256.New()
		for _, f := range append(files, File{Content: config}) {
			_, _ = fmt.Fprintf(h, "%d %s %d ", len(f.Name), f.Name, len(f.Content))
			_, _ = h.Write(f.Content)
		}
		if sum := [sha256.Size]byte(h.Sum(nil)); sum != last {
			last = sum
			made, madeErr = o.translate(files, config)
		}
		return made, madeErr
	}
}

// translate makes the file of weir.
func (o Options) translate(files []File, config []byte) ([]byte, error) {
	domains, err := o.domains(files)
	if err != nil {
		return nil, err
	}
	whole := map[string]any{rlsconfig.Field: o.alone(domains)}
	if o.Config != "" {
		if whole, err = o.within(domains, config); err != nil {
			return nil, err
		}
	}
	made, err := yaml.Dump(whole, yaml.WithIndent(2))
	if err == nil && len(made) > fileconfig.MaxSize {
		err = fmt.Errorf("there are too many rules: as a file of weir they have %d bytes, and must have at most %d; leave some out, or divide the domains among several services", len(made), fileconfig.MaxSize)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Name(), err)
	}
	return made, nil
}

// domains returns what the files of the other server have. Places are found only if there is something wrong.
func (o Options) domains(files []File) ([]rlsconfig.Domain, error) {
	load := func(places bool) (*loader, []error) {
		l := newLoader(o.MergeDomains)
		var errs []error
		for _, f := range files {
			at := place{}
			if places {
				at = placesOf(f.Content)
			}
			if err := l.load(f, at); err != nil {
				errs = append(errs, err)
			}
		}
		return l, errs
	}
	l, errs := load(false)
	if len(errs) > 0 {
		_, errs = load(true)
	}
	switch len(errs) {
	case 0:
		return l.domains, nil
	case 1:
		return nil, errs[0]
	default:
		return nil, errors.Join(errs...)
	}
}

// alone returns the part of a file with the domains and the counters.
func (o Options) alone(domains []rlsconfig.Domain) rlsconfig.RLS {
	made := rlsconfig.RLS{Mode: cmp.Or(o.Mode, rlsconfig.Exact), Domains: domains}
	if o.Redis != "" || o.Postgres != "" {
		const name = "counters"
		made.Stores = map[string]fileconfig.Store{name: {Redis: o.Redis, Postgres: o.Postgres, Migrate: o.Postgres != ""}}
		made.Counters = rlsconfig.Counters{Store: name, Outage: store.FailOpen} // as Envoy does when the other server fails
	}
	return made
}

// within returns the file Config with the domains in it. What is wrong with the file is told at its own lines.
func (o Options) within(domains []rlsconfig.Domain, content []byte) (map[string]any, error) {
	kinds := reload.NewKinds()
	rlsconfig.Register(kinds, rlsconfig.Runtime{})
	f, err := reload.Parse(o.Config, content, kinds)
	if err != nil {
		return nil, err
	}
	p := &problems{file: o.Config}
	switch c, ok := reload.SectionOf[rlsconfig.RLS](f, rlsconfig.Field); {
	case !ok:
		p.add(1, 1, "", "%s is missing", rlsconfig.Field)
	case len(c.Domains) > 0:
		where := placesOf(content).get(rlsconfig.Field).get("domains")
		p.add(where.line, where.column, "rls.domains", "must be left out with -ratelimit-config, which has the domains")
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	var whole map[string]any
	if err := yaml.Load(content, &whole); err != nil {
		return nil, fmt.Errorf("%s: it cannot be changed: %w", o.Config, err) // Parse has accepted it
	}
	section := map[string]any{}
	maps.Copy(section, whole[rlsconfig.Field].(map[string]any))
	section["domains"] = domains
	if o.Mode != rlsconfig.DefaultMode {
		section["mode"] = o.Mode
	}
	whole[rlsconfig.Field] = section
	return whole, nil
}

// Print returns the file of weir as one to keep: checked, with a line that says what it is made of.
func (o Options) Print() ([]byte, error) {
	content, err := o.Reader()()
	if err != nil {
		return nil, err
	}
	kinds := reload.NewKinds()
	rlsconfig.Register(kinds, rlsconfig.Runtime{})
	if _, err := reload.Parse(o.Name(), content, kinds); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Made of the configuration of envoyproxy/ratelimit in %q. Run it by weir rls -config FILE.\n", o.Dir)
	b.Write(content)
	return b.Bytes(), nil
}
