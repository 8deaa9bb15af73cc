package main

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	changelogFile = "CHANGELOG.md"
	unreleased    = "## [Unreleased]"
)

var errNothingUnreleased = errors.New(changelogFile + ` has no entry under "Unreleased"`)

// releasedChangelog moves what is under "Unreleased" under a heading of the version.
func releasedChangelog(text, version string, now time.Time) (string, error) {
	lines := strings.Split(text, "\n")
	heading, found := 0, false
	entries := false
	number := strings.TrimPrefix(version, "v")
	for i, line := range lines {
		switch {
		case line == unreleased:
			if found {
				return "", fmt.Errorf("%s has two sections %q", changelogFile, unreleased)
			}
			heading, found = i, true
		case strings.HasPrefix(line, "## ["+number+"]"):
			return "", fmt.Errorf("%s has a section of %s already", changelogFile, number)
		case found && !entries && strings.HasPrefix(line, "## "):
			return "", errNothingUnreleased
		case found && strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "#"):
			entries = true
		}
	}
	if !found {
		return "", fmt.Errorf("%s has no section %q", changelogFile, unreleased)
	}
	if !entries {
		return "", errNothingUnreleased
	}
	lines[heading] = unreleased + "\n\n## [" + number + "] - " + now.Format(time.DateOnly)
	return strings.Join(lines, "\n"), nil
}
