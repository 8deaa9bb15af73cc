package registry

import (
	"fmt"
	"iter"
	"time"

	"github.com/weir-go/weir/pipeline"
)

// A PipelineInfo describes an instance of a pipeline that has been built.
type PipelineInfo struct {
	// Name and Instance are the names of the pipeline and of its instance.
	Name, Instance string
	// Pipeline is the handle, as [Registry.Get] or [Registry.GetInstance] returns it.
	Pipeline *pipeline.Pipeline
	// Version is the number of the version in force: 1 for the first, and one more for each version that has replaced
	// another. A pipeline that is removed and defined again begins at 1.
	Version int
	// Built is when the version came into force.
	Built time.Time
	// LastReload is when the last [Registry.Reload] or [Registry.Apply] that was to replace a version of this instance
	// ended. It is zero if there was none.
	LastReload time.Time
	// Err is why the last reload failed. It is nil if it succeeded, or if there was none. A reload fails for all of its
	// pipelines: if another pipeline is to blame, the error says so and wraps the reason.
	Err error
	// Draining is the number of replaced versions that executions can still reach.
	Draining int
}

// Pipelines yields the instances that have been built, sorted by name and instance. The key is the name or, if the
// instance has a name, name/instance.
func (r *Registry) Pipelines() iter.Seq2[string, PipelineInfo] {
	return func(yield func(string, PipelineInfo) bool) {
		for _, info := range r.pipelineInfos() {
			if !yield(id{info.Name, info.Instance}.String(), info) {
				return
			}
		}
	}
}

func (r *Registry) pipelineInfos() []PipelineInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.built()
	infos := make([]PipelineInfo, 0, len(all))
	for _, i := range all {
		infos = append(infos, PipelineInfo{
			Name: i.name, Instance: i.instance, Pipeline: i.handle.Pipeline(),
			Version: i.versions, Built: i.inForceAt, LastReload: i.lastReload, Err: i.reloadErr, Draining: r.draining[i.id],
		})
	}
	return infos
}

// recordVersion records that a version came into force. The caller holds r.mu.
func (i *instance) recordVersion(at time.Time, replacesAnother bool) {
	i.versions++
	i.inForceAt = at
	if replacesAnother {
		i.lastReload, i.reloadErr = at, nil
	}
}

// recordFailure records for each instance that the change was to build why it keeps its version. err is why the change
// has failed, and c.faults has what is wrong with single instances.
func (c *change) recordFailure(err error) {
	r, now := c.registry, time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range c.affected {
		for _, i := range d.instances {
			if i.current == nil {
				continue
			}
			i.lastReload, i.reloadErr = now, c.faults[i]
			if i.reloadErr == nil {
				i.reloadErr = fmt.Errorf("registry: pipeline %s was not reloaded, because the reload failed: %w", i.id, err)
			}
		}
	}
}
