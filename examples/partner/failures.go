package main

// interrupted is the failure of a request that was open when the program was stopped. It is not counted.
const interrupted = "interrupted"

// explanations say what a failure means: PostgreSQL's codes, and names of this program.
var explanations = map[string]string{
	"55P03":      "another request holds the user's row at this moment, so this one is refused, even if the limit has room",
	"40P01":      "a deadlock: two inserts wait for each other, until PostgreSQL ends one after deadlock_timeout",
	"timeout":    "the limiter has not decided within " + callTimeout.String() + "; each request waits for others that wait",
	"no answer":  "the instance has not answered within " + clientTimeout.String(),
	"store away": "PostgreSQL has not answered weir in time, and the limiter rejects what it cannot decide",
}

func explain(failure string) string {
	if text, ok := explanations[failure]; ok {
		return text
	}
	return "the request was neither granted nor rejected"
}
