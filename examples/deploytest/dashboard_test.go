package deploytest

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A dashboard is what the tests look at in the JSON of a dashboard of Grafana.
type dashboard struct {
	UID        string
	Title      string
	Panels     []panel
	Templating struct{ List []variable }
}

type panel struct {
	ID          int
	Type, Title string
	Datasource  datasource
	GridPos     struct{ X, Y, W, H int }
	FieldConfig struct{ Defaults struct{ Unit string } }
	Targets     []target
}

type target struct {
	RefID        string
	Datasource   datasource
	Expr         string // of Prometheus and Loki
	Query        string // of Tempo
	LegendFormat string
}

type datasource struct{ Type, UID string }

type variable struct {
	Name, Type string
	AllValue   string
	Current    struct{ Value any }
	Definition string
}

func readDashboard(t *testing.T, name string) (d dashboard) {
	t.Helper()
	require.NoError(t, json.Unmarshal(read(t, filepath.Join(deploy, "grafana/dashboards", name)), &d))
	return d
}

// queried returns the panels that ask a source of data: all but rows.
func (d dashboard) queried() (panels []panel) {
	for _, p := range d.Panels {
		if p.Type != "row" {
			panels = append(panels, p)
		}
	}
	return panels
}

// The twelve panels of the demo, in its order.
var demoPanels = []string{
	"Max time in the limiter, with and without error",
	"p99 of requests",
	"Mean time in the limiter, by result",
	"Mean request time over time",
	"Share of successful requests",
	"Mean request time now",
	"Successful GETs in all",
	"Successful POSTs in all",
	"Passes of the limiter",
	"Errors of the limiter",
	"Share of passes",
	"Share of errors",
}

func TestDashboard_BeginsWithThePanelsOfTheDemo(t *testing.T) {
	var titles []string
	for _, p := range readDashboard(t, "weir.json").queried()[:len(demoPanels)] {
		titles = append(titles, p.Title)
	}
	require.Equal(t, demoPanels, titles)
}

// Every panel can be drawn with the sources of data that are provisioned.
func TestDashboards_ArePanelsWithTitleQueryAndUnit(t *testing.T) {
	sources := provisionedSources(t)
	for _, name := range []string{"weir.json", "logs.json"} {
		t.Run(name, func(t *testing.T) {
			d := readDashboard(t, name)
			require.NotEmpty(t, d.UID)
			for _, v := range d.Templating.List {
				if v.Type == "datasource" {
					require.Contains(t, sources, v.Current.Value, "the variable %s", v.Name)
				}
			}
			titles, ids := map[string]bool{}, map[int]bool{}
			for _, p := range d.Panels {
				assert.NotEmpty(t, p.Title)
				assert.False(t, titles[p.Title], "two panels are called %q", p.Title)
				assert.False(t, ids[p.ID], "two panels have the id %d", p.ID)
				titles[p.Title], ids[p.ID] = true, true
				assert.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
			}
			for _, p := range d.queried() {
				assert.NotEmpty(t, p.Targets, p.Title)
				if p.Type == "timeseries" || p.Type == "stat" {
					assert.NotEmpty(t, p.FieldConfig.Defaults.Unit, p.Title)
				}
				for _, query := range p.Targets {
					assert.NotEmpty(t, query.Expr+query.Query, p.Title)
					if uid := query.Datasource.UID; uid != "${datasource}" {
						assert.Contains(t, sources, uid, p.Title)
					}
				}
			}
		})
	}
}

// provisionedSources are the uids of the sources of data that Grafana gets.
func provisionedSources(t *testing.T) (uids []any) {
	t.Helper()
	type sources struct{ Datasources []struct{ UID, URL string } }
	for _, s := range decodeYAML[sources](t, deploy+"/grafana/provisioning/datasources/datasources.yaml").Datasources {
		uids = append(uids, s.UID)
	}
	return uids
}

var variableName = regexp.MustCompile(`\$\{?(\w+)\}?`)

// legendLabel is a label in the legend of a query.
var legendLabel = regexp.MustCompile(`\{\{(\w+)\}\}`)

// expand replaces the variables of a query as Grafana does. Variables without a value here stand for everything.
func expand(query string, values map[string]string) string {
	return variableName.ReplaceAllStringFunc(query, func(reference string) string {
		if value, ok := values[variableName.FindStringSubmatch(reference)[1]]; ok {
			return value
		}
		return ".*"
	})
}
