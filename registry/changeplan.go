package registry

import (
	"errors"
	"maps"
	"slices"
)

// planReload plans to build the named pipelines again, or all that have been built if there are no names.
func (c *change) planReload(names []string) error {
	r := c.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrClosed
	}
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(r.definitions))
		names = slices.DeleteFunc(names, func(n string) bool { return r.definitions[n].build == nil })
	}
	var errs []error
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		d, err := r.findDefinition(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		c.affected = append(c.affected, d)
		d.markOutdated()
	}
	return errors.Join(errs...)
}

// planDefinitions plans the definitions and removals of the change.
func (c *change) planDefinitions() error {
	r := c.registry
	defaultNames := make(map[string]string, len(c.define))
	for name := range c.define {
		var err error
		if defaultNames[name], err = r.defaultInstanceName(name); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrClosed
	}
	var errs []error
	for _, name := range c.remove {
		_, err := r.findDefinition(name)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(c.define)) {
		d := r.findOrAddDefinition(name, defaultNames[name])
		if d.instances[d.defaultInstance] == nil {
			d.add(d.defaultInstance)
		}
		c.defaults[name] = d.instances[d.defaultInstance]
		c.affected = append(c.affected, d)
	}
	return nil
}

// dropEmptyDefinitions removes the definitions that apply has added and that have no build function, because the
// change has failed.
func (c *change) dropEmptyDefinitions() {
	r := c.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range c.define {
		if d := r.definitions[name]; d != nil && d.build == nil {
			r.removeDefinition(d)
		}
	}
}
