package main

import (
	"bytes"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// parse reads a file below .github. If strict, a key that into has no field for is an error.
func parse(t *testing.T, file string, into any, strict bool) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../.github", filepath.FromSlash(file)))
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(strict)
	if err := decoder.Decode(into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

func TestGitHub_Workflows(t *testing.T) {
	files, err := filepath.Glob("../../.github/workflows/*")
	if err != nil || len(files) == 0 {
		t.Fatal("no workflow", err)
	}
	for _, file := range files {
		var workflow struct {
			Name string
			On   map[string]any
			Jobs map[string]struct {
				RunsOn string `yaml:"runs-on"`
				Steps  []struct{ Uses, Run string }
			}
		}
		file = "workflows/" + filepath.Base(file)
		parse(t, file, &workflow, false)
		if workflow.Name == "" || len(workflow.On) == 0 || len(workflow.Jobs) == 0 {
			t.Errorf("%s lacks a name, a trigger or jobs", file)
		}
		for name, job := range workflow.Jobs {
			if job.RunsOn == "" || len(job.Steps) == 0 {
				t.Errorf("%s: the job %s lacks a runner or steps", file, name)
			}
			for i, step := range job.Steps {
				if (step.Uses == "") == (step.Run == "") {
					t.Errorf("%s: step %d of the job %s must have one of uses and run", file, i+1, name)
				}
			}
		}
	}
}

func TestGitHub_IssueForms(t *testing.T) {
	var config struct {
		BlankIssuesEnabled bool                                `yaml:"blank_issues_enabled"`
		ContactLinks       []struct{ Name, URL, About string } `yaml:"contact_links"`
	}
	parse(t, "ISSUE_TEMPLATE/config.yml", &config, true)
	for _, link := range config.ContactLinks {
		if link.Name == "" || link.URL == "" || link.About == "" {
			t.Errorf("config.yml: the link %q lacks a name, an address or a description", link.Name)
		}
	}
	for _, file := range []string{"bug.yml", "feature.yml"} {
		var form struct {
			Name, Description string
			Labels            []string
			Body              []struct {
				Type, ID    string
				Attributes  struct{ Label, Description, Render string }
				Validations struct{ Required bool }
			}
		}
		parse(t, "ISSUE_TEMPLATE/"+file, &form, true)
		if form.Name == "" || form.Description == "" || len(form.Body) == 0 {
			t.Errorf("%s lacks a name, a description or a body", file)
		}
		ids := map[string]bool{}
		for _, field := range form.Body {
			if field.Attributes.Label == "" || ids[field.ID] || !slices.Contains([]string{"input", "textarea"}, field.Type) {
				t.Errorf("%s: the field %q lacks a label, has the id of another or is of an unknown type", file, field.ID)
			}
			ids[field.ID] = true
		}
	}
}

// A module that dependabot.yml does not name gets no new versions of its dependencies.
func TestGitHub_DependabotHasEveryModule(t *testing.T) {
	var config struct {
		Version int
		Updates []struct {
			Ecosystem   string `yaml:"package-ecosystem"`
			Directory   string
			Directories []string
			Schedule    struct{ Interval string }
			Groups      map[string]struct{ Patterns []string }
			Ignore      []struct {
				Name string `yaml:"dependency-name"`
			}
		}
	}
	parse(t, "dependabot.yml", &config, true)
	var directories, ecosystems []string
	for _, update := range config.Updates {
		ecosystems = append(ecosystems, update.Ecosystem)
		if update.Ecosystem == "gomod" {
			directories = update.Directories
		}
		if update.Schedule.Interval == "" {
			t.Errorf("%s has no interval", update.Ecosystem)
		}
	}
	if want := []string{"gomod", "github-actions"}; config.Version != 2 || !slices.Equal(ecosystems, want) {
		t.Errorf("version %d of %v, want 2 of %v", config.Version, ecosystems, want)
	}

	files, err := repository{dir: "../.."}.files(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, file := range files {
		if path.Base(file) == "go.mod" {
			want = append(want, "/"+strings.TrimPrefix(path.Dir(file), "."))
		}
	}
	slices.Sort(want)
	if slices.Sort(directories); !slices.Equal(directories, want) {
		t.Errorf("directories: %v, want %v", directories, want)
	}
}
