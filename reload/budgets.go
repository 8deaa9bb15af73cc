package reload

import (
	"reflect"

	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/model"
	"github.com/weir-go/weir/strategies/budget"
)

// A budgetRef is a place where a strategy names a budget.
type budgetRef struct {
	*document.Node
	path string
	by   *model.Strategy
}

// budgets decodes the budgets of a file.
func (d *decoder) budgets(n *document.Node, f *File) {
	if n.Kind != document.Mapping {
		d.Add(n, model.BudgetsField, "must be a mapping of names to budgets, found %v", n)
		return
	}
	d.named(n, model.BudgetsField, "budgets")
	for _, e := range n.Entries {
		b := &model.Budget{Name: e.Key.Text}
		d.options(e.Value, reflect.ValueOf(&b.Options), document.Child(model.BudgetsField, b.Name), nil)
		f.has.Budgets = append(f.has.Budgets, b)
	}
}

// budgetOf records the budget that a strategy names, for referBudgets.
func (d *decoder) budgetOf(n *document.Node, path string, s *model.Strategy) {
	if name := n.Get("budget"); name != nil && name.Kind == document.Text {
		d.budgetRefs = append(d.budgetRefs, budgetRef{name, document.Child(path, "budget"), s})
	}
}

// referBudgets resolves the budgets that strategies name.
func (d *decoder) referBudgets(f *File) {
	known := make(map[string]*model.Budget, len(f.has.Budgets))
	for _, b := range f.has.Budgets {
		known[b.Name] = b
	}
	names := f.Budgets()
	for _, r := range d.budgetRefs {
		if r.by.Budget = known[r.Text]; r.by.Budget == nil {
			d.Add(r.Node, r.path, "there is no budget %s, %s", document.Quoted(r.Text), d.Instead(r.Text, names, "the file has no budgets"))
		}
	}
}

// keepBudget returns the registry's budget of that name, or nil if m is nil. It keeps what it has counted from one
// version of the file to the next.
func keepBudget(b *registry.Builder, m *model.Budget) budget.Budget {
	if m == nil {
		return nil
	}
	return registry.Keep(b, m.Name, m.Options, registry.Kept[*budget.Ratio, budget.Options]{
		Kind:        "budget",
		Make:        func(o budget.Options) (*budget.Ratio, error) { return budget.New(&o) },
		Reconfigure: func(r *budget.Ratio, o budget.Options) error { return r.Reconfigure(&o) },
	})
}
