package dashboard

import (
	"context"
	"net/url"
)

// An action is what users can do.
type action struct {
	page    string                                                    // that it belongs to
	read    func(ctx context.Context, d *Dashboard, q *request) error // reads the parameters of an action that has more than a target; can be nil
	confirm func(d *Dashboard, q *request) (*confirmation, error)     // returns what the user is asked
	do      func(ctx context.Context, d *Dashboard, q *request) (*outcome, error)
}

// A request is an action that a user asks for, with all that it needs.
type request struct {
	Action
	action action
	form   url.Values
	job    JobRef // of a release
	holder JobHolder
	shown  string // the target as the log and the events show it: with the hash of a key
	who    string
}

// A confirmation is what the page that asks before an action gets.
type confirmation struct {
	Text   string
	Notes  []string
	Error  string
	Legend string
	Fields []formField
	Hidden []field
	Button string
}

// A formField is an input of a form.
type formField struct {
	Name, Label, Value, Was string
	Choices                 []string
	Required, Wide          bool
}

// An outcome is what an action has done.
type outcome struct {
	Action string `json:"action"`
	Target string `json:"target"`
	User   string `json:"user"`
	Text   string `json:"text"`
	YAML   string `json:"yaml"` // the limits, as they can be put into the file
}
