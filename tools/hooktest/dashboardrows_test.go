package hooktest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"

	"github.com/weir-go/weir/dashboard"
	"github.com/weir-go/weir/registry"
)

// shows asks a dashboard for a page or, if there is a form, sends the form.
func (x *scene) shows(o dashboard.Options, path, form string) drill {
	o.Registry = registry.New(nil)
	d := must(dashboard.New(o))
	x.then(func() {
		_ = d.Close()
		_ = o.Registry.Close(context.Background())
	})
	return drill{do: func() {
		r := httptest.NewRequestWithContext(x.context(), http.MethodGet, path, nil)
		if form != "" {
			r = httptest.NewRequestWithContext(x.context(), http.MethodPost, path, strings.NewReader(form))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		d.ServeHTTP(httptest.NewRecorder(), r)
	}}
}

// throttled is a dashboard.Jobs one of whose methods is the hook.
type throttled struct {
	x  *scene
	in string
}

func (j throttled) call(ctx context.Context, method string) {
	if j.in == method {
		j.x.hit(ctx)
	}
}

func (j throttled) Limiters(ctx context.Context) ([]dashboard.JobLimiter, error) {
	j.call(ctx, "Limiters")
	return nil, nil
}

func (j throttled) Keys(ctx context.Context, _ dashboard.JobRef, _ string, _ int) ([]string, error) {
	j.call(ctx, "Keys")
	return nil, nil
}

func (j throttled) Inspect(ctx context.Context, r dashboard.JobRef) (dashboard.JobState, error) {
	j.call(ctx, "Inspect")
	return dashboard.JobState{JobRef: r}, nil
}

func (j throttled) Release(ctx context.Context, _ dashboard.JobRef, _ dashboard.JobHolder) (bool, error) {
	j.call(ctx, "Release")
	return true, nil
}

func allow(*http.Request, dashboard.Action) (string, error) { return "alice", nil }

var dashboardRows = slices.Concat(
	fields(caught, "Authorize", dashboard.Options{Authorize: allow}, func(x *scene, o *dashboard.Options) drill {
		return x.shows(*o, "/action", "do=reload&target=weir.yaml")
	}),
	fields(caught, "Check", dashboard.Options{}, func(x *scene, o *dashboard.Options) drill { return x.shows(*o, "/check?url=/", "") }),
	[]row{
		{"dashboard.Options.Jobs dashboard.Jobs.Limiters", caught, func(x *scene) drill {
			return x.shows(dashboard.Options{Jobs: throttled{x, "Limiters"}}, "/overview", "")
		}},
		{"dashboard.Jobs.Keys", caught, func(x *scene) drill {
			return x.shows(dashboard.Options{Jobs: throttled{x, "Keys"}}, "/jobs?type=mutex&name=a", "")
		}},
		{"dashboard.Jobs.Inspect", caught, func(x *scene) drill {
			return x.shows(dashboard.Options{Jobs: throttled{x, "Inspect"}}, "/jobs?type=mutex&name=a", "")
		}},
		{"dashboard.Jobs.Release", caught, func(x *scene) drill {
			o := dashboard.Options{Jobs: throttled{x, "Release"}, Authorize: allow}
			return x.shows(o, "/action", "do=release&type=mutex&name=a&job=1")
		}},
	},
)
