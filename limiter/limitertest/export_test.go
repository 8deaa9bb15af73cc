package limitertest

import "testing"

// Check runs the suite and returns what failed, by the name of the case.
func Check(t *testing.T, s Subject) map[string][]string {
	failed := map[string][]string{}
	s = s.withDefaults()
	for _, c := range s.cases() {
		if f := c.check(t, s); len(f) > 0 {
			failed[c.name] = f
		}
	}
	return failed
}

// CheckOne runs one case, and returns what failed. ok is false if s has none of that name.
func CheckOne(t *testing.T, s Subject, name string) (failures []string, ok bool) {
	s = s.withDefaults()
	for _, c := range s.cases() {
		if c.name == name {
			return c.check(t, s), true
		}
	}
	return nil, false
}

// Names returns the names of all cases.
func Names() (names []string) {
	for _, c := range allCases() {
		names = append(names, c.name)
	}
	return names
}
