package ratelimitconfig

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

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

// storeName is the name of the only store of a file that is made without Config.
const storeName = "counters"

// Read returns the file of weir. Errors in a file are a [*reload.FileError], or several that are joined.
func (o Options) Read() ([]byte, error) { return o.Reader()() }

// Reader returns a function that is Read, for [reload.Options.Read]. It makes the file again only when one of its sources has
// changed. It must not be called concurrently.
func (o Options) Reader() func() ([]byte, error) {
	var last [sha256.Size]byte
	var made []byte
	var madeErr error
	return func() ([]byte, error) {
		from, err := o.sources()
		if err != nil {
			return nil, err
		}
		if sum := from.sum(); sum != last {
			last = sum
			made, madeErr = o.translate(from)
		}
		return made, madeErr
	}
}

// sources are what a file of weir is made of.
type sources struct {
	files  []File
	config []byte // of the file Config
}

// sources reads the files.
func (o Options) sources() (s sources, err error) {
	if s.files, err = ReadFiles(o.Dir); err != nil || o.Config == "" {
		return s, err
	}
	if s.config, err = regularfile.Read(o.Config, maxConfig); err != nil {
		return s, named(o.Config, err)
	}
	return s, nil
}

// sum returns a hash of the files and their names.
func (s sources) sum() (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, f := range append(s.files, File{Content: s.config}) {
		_, _ = fmt.Fprintf(h, "%d %s %d ", len(f.Name), f.Name, len(f.Content))
		_, _ = h.Write(f.Content)
	}
	h.Sum(sum[:0])
	return sum
}

// translate makes the file of weir.
func (o Options) translate(from sources) ([]byte, error) {
	domains, err := o.domains(from.files)
	if err != nil {
		return nil, err
	}
	var made []byte
	if o.Config == "" {
		made, err = o.alone(domains)
	} else {
		made, err = o.within(domains, from.config)
	}
	if err == nil && len(made) > fileconfig.MaxSize {
		err = fmt.Errorf("%s: there are too many rules: as a file of weir they have %d bytes, and must have at most %d; leave some out, or divide the domains among several services", o.Name(), len(made), fileconfig.MaxSize)
	}
	if err != nil {
		return nil, err
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

// alone returns a file with the domains and the counters.
func (o Options) alone(domains []rlsconfig.Domain) ([]byte, error) {
	made := rlsconfig.RLS{Mode: o.mode(), Domains: []rlsconfig.Domain{{Domain: placeholder}}}
	s := fileconfig.Store{Redis: o.Redis, Postgres: o.Postgres, Migrate: o.Postgres != ""}
	if o.Redis != "" || o.Postgres != "" {
		made.Common.Stores = map[string]fileconfig.Store{storeName: s}
		made.Counters = rlsconfig.Counters{Store: storeName, Outage: store.FailOpen} // as Envoy does when the other server fails
	}
	text, err := dump(struct {
		RLS rlsconfig.RLS `yaml:"rls"`
	}{made})
	if err != nil {
		return nil, err
	}
	return withDomains(text, domains)
}

// placeholder is the name of the only domain of a text that withDomains fills in.
const placeholder = "weir-domains-stand-here"

// withDomains puts the domains in place of the placeholder. The YAML package keeps all of a value in memory until it is
// written, about 20 times its text. So rules are written some at a time.
func withDomains(text []byte, domains []rlsconfig.Domain) ([]byte, error) {
	at := bytes.Index(text, []byte("- domain: "+placeholder+"\n"))
	if at < 0 {
		return nil, errors.New("the translated file: it has no place for the domains")
	}
	begin := bytes.LastIndexByte(text[:at], '\n') + 1
	end := at + bytes.IndexByte(text[at:], '\n') + 1
	w := writer{indent: at - begin}
	w.Write(text[:begin])
	for _, d := range domains {
		rules := d.Descriptors
		d.Descriptors = nil
		if err := w.dump([]rlsconfig.Domain{d}); err != nil {
			return nil, err
		}
		if err := w.descriptors(rules); err != nil {
			return nil, err
		}
	}
	w.Write(text[end:])
	return w.Bytes(), nil
}

// A writer writes items of lists.
type writer struct {
	bytes.Buffer
	indent int
}

// atOnce is how many rules are written at once.
const atOnce = 1000

// descriptors writes the field descriptors of the item that was written last.
func (w *writer) descriptors(all []rlsconfig.Descriptor) error {
	if len(all) == 0 {
		return nil
	}
	w.WriteString(strings.Repeat(" ", w.indent+2) + "descriptors:\n")
	w.indent += 2
	defer func() { w.indent -= 2 }()
	for len(all) > 0 {
		n, rules := 0, 0
		for n < len(all) && rules+countRules(all[n]) <= atOnce {
			rules += countRules(all[n])
			n++
		}
		if n > 0 {
			if err := w.dump(all[:n]); err != nil {
				return err
			}
			all = all[n:]
			continue
		}
		outer := all[0]
		outer.Descriptors = nil
		if err := w.dump([]rlsconfig.Descriptor{outer}); err != nil {
			return err
		}
		if err := w.descriptors(all[0].Descriptors); err != nil {
			return err
		}
		all = all[1:]
	}
	return nil
}

func countRules(d rlsconfig.Descriptor) int {
	n := 1
	for _, inner := range d.Descriptors {
		n += countRules(inner)
	}
	return n
}

// dump writes a list.
func (w *writer) dump(list any) error {
	text, err := dump(list)
	if err != nil {
		return err
	}
	for line := range bytes.Lines(text) {
		if len(line) > 1 {
			w.WriteString(strings.Repeat(" ", w.indent))
		}
		w.Write(line)
	}
	return nil
}

func (o Options) mode() rlsconfig.Mode {
	if o.Mode == rlsconfig.DefaultMode {
		return rlsconfig.Exact
	}
	return o.Mode
}

func dump(value any) ([]byte, error) {
	text, err := yaml.Dump(value, yaml.WithIndent(2))
	if err != nil {
		return nil, fmt.Errorf("the translated file: %w", err)
	}
	return append(bytes.TrimRight(text, "\n"), '\n'), nil
}

// maxConfig bounds the file Config, in bytes.
const maxConfig = fileconfig.MaxSize

// within returns the file Config with the domains in it. What is wrong with the file is told at its own lines.
func (o Options) within(domains []rlsconfig.Domain, content []byte) ([]byte, error) {
	kinds := reload.NewKinds()
	rlsconfig.Register(kinds, rlsconfig.Runtime{})
	f, err := reload.Parse(o.Config, content, kinds)
	if err != nil {
		return nil, err
	}
	p := &problems{file: o.Config}
	at := placesOf(content).get(rlsconfig.Field)
	c, ok := reload.SectionOf[rlsconfig.RLS](f, rlsconfig.Field)
	switch {
	case !ok:
		p.add(1, 1, "", "%s is missing", rlsconfig.Field)
	case len(c.Domains) > 0:
		where := at.get("domains")
		p.add(where.line, where.column, "rls.domains", "must be left out with -ratelimit-config, which has the domains")
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	var documents []yaml.Node
	if err := yaml.Load(content, &documents, yaml.WithAllDocuments()); err != nil || len(documents) != 1 {
		return nil, fmt.Errorf("%s: it cannot be changed: %w", o.Config, err) // Parse has accepted it
	}
	section := placeOf(&documents[0])
	if documents[0].Kind == yaml.DocumentNode {
		section = placeOf(documents[0].Content[0])
	}
	section.node.Style &^= yaml.FlowStyle // for withDomains
	section = section.get(rlsconfig.Field)
	section.node.Style &^= yaml.FlowStyle
	if err := set(section.node, "domains", []rlsconfig.Domain{{Domain: placeholder}}); err != nil {
		return nil, err
	}
	if o.Mode != rlsconfig.DefaultMode {
		if err := set(section.node, "mode", o.Mode); err != nil {
			return nil, err
		}
	}
	text, err := dump(&documents[0])
	if err != nil {
		return nil, err
	}
	return withDomains(text, domains)
}

// set sets a key of a mapping.
func set(mapping *yaml.Node, key string, value any) error {
	text, err := yaml.Dump(value)
	if err != nil {
		return err
	}
	var made []yaml.Node
	if err := yaml.Load(text, &made, yaml.WithAllDocuments()); err != nil || len(made) != 1 {
		return fmt.Errorf("the translated file: %w", err)
	}
	n := placeOf(&made[0]).node
	if n.Kind == yaml.DocumentNode {
		n = n.Content[0]
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			mapping.Content = slices.Delete(mapping.Content, i, i+2)
			break
		}
	}
	mapping.Content = append(mapping.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, n)
	return nil
}

// Print returns the file of weir as one to keep: checked, with a line that says what it is made of.
func (o Options) Print() ([]byte, error) {
	content, err := o.Read()
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
