package reload_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// Mail is the program's own part of the file.
type Mail struct {
	Workers int              `yaml:"workers,omitempty" reload:"fixed,default=4,least=1" doc:"How many mails are sent at once."`
	Log     bool             `yaml:"log,omitempty" doc:"Log each mail."`
	Lists   map[string]*List `yaml:"lists" doc:"The mailing lists, by name."`
}

// List is a mailing list.
type List struct {
	Limiter string        `yaml:"limiter" reload:"limiter" doc:"The limiter of its mails."`
	Timeout time.Duration `yaml:"timeout,omitempty" doc:"How long a mail can take."`
}

// pipelines returns a pipeline for each list.
func (m Mail) pipelines() map[string]func(b *reload.SectionBuilder) error {
	builds := make(map[string]func(b *reload.SectionBuilder) error)
	for name, list := range m.Lists {
		builds["mail/"+name] = func(b *reload.SectionBuilder) error {
			l, err := b.Limiter(list.Limiter)
			if err != nil {
				return err
			}
			b.Add(ratelimit.New(l, nil))
			return nil
		}
	}
	return builds
}

// A program has its own part of the file, beside limiters and pipelines.
func ExampleRegisterSection() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "weir.yaml")
	write := func(mail string) {
		content := "limiters:\n  slow: {fixed_window: {permit_limit: 1, window: 1h}}\nmail:\n  lists: {news: {limiter: slow}}\n" + mail
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			panic(err)
		}
	}
	write("")

	kinds := reload.NewKinds()
	reload.RegisterSection(kinds, "mail", reload.Section[Mail]{
		Doc:       "The mails that the program sends.",
		Required:  true,
		Pipelines: Mail.pipelines,
	})
	r := registry.New(nil)
	defer r.Close(ctx)
	w, err := reload.Start(ctx, r, path, &reload.Options{
		Kinds:    kinds,
		Interval: -1,
		Settle:   time.Millisecond,
		Logger:   slog.New(slog.DiscardHandler),
		InForce: func(f *reload.File) {
			mail, _ := reload.SectionOf[Mail](f, "mail")
			fmt.Println("log:", mail.Log)
		},
	})
	if err != nil {
		panic(err)
	}
	defer w.Stop()

	news, err := r.Get("mail/news")
	if err != nil {
		panic(err)
	}
	for range 2 {
		err := news.Execute(ctx, func(context.Context) error { return nil })
		fmt.Println("rejected:", errors.Is(err, pipeline.ErrRejected))
	}
	write("  log: true\n")
	fmt.Println(w.Reload(ctx))
	write("  workers: 8\n")
	err = w.Reload(ctx)
	fmt.Println(filepath.Base(err.Error()))
	// Output:
	// log: false
	// rejected: false
	// rejected: true
	// log: true
	// <nil>
	// weir.yaml:5:3: mail.workers: cannot change while the program runs; restart it with this file, or undo the change
}
