package main

// interrupted is the failure of a request that was open when the program was stopped. It is not counted.
const interrupted = "interrupted"

// Failures of limiters that are not a code of PostgreSQL.
const (
	storeAway = "store away" // weir's
	undecided = "timeout"    // a SQL variant's
)

// explanations say what a failure means: PostgreSQL's codes, and names of this program.
var explanations = map[string]string{
	"55P03":      "another request holds the user's row at this moment, so this one is refused, even if the limit has room",
	"40P01":      "a deadlock: two inserts wait for each other, until PostgreSQL ends one after deadlock_timeout",
	undecided:    "the limiter has not decided within " + callTimeout.String() + "; each request waits for others that wait",
	"status 500": "the service has failed, because the database does not answer",
	"no answer":  "the instance has not answered within " + clientTimeout.String(),
	storeAway:    "PostgreSQL has not answered weir in time, and the limiter rejects what it cannot decide",
}

func explain(failure string) string {
	if text, ok := explanations[failure]; ok {
		return text
	}
	return "the request was neither granted nor rejected"
}
