//go:build !js

package rlsoracle

import (
	"fmt"
	"strings"
)

// A scenario is one of the other server's integration tests. Each line of script is a domain, the descriptors and, behind
// the arrow, the answer: the overall code, and for each descriptor what is left, "over", "none" where there is no limit, or
// "unlimited". A descriptor can have hits: key=value+3. "wait 1m" lets time pass.
type scenario struct {
	name   string
	files  []string // of the other server's module, or rules
	script string
	// exact is the script if the answers differ for exact limits.
	exact string
}

// quotas are rules of the other server's example, newer than its module.
const quotas = `
domain: rl
descriptors:
- {key: service, value: service_1, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
- {key: service, value: service_2, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}
`

func lines(n int, line func(i int) string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(line(i) + "\n")
	}
	return b.String()
}

var scenarios = []scenario{
	{
		name: "unknown domain", files: []string{"test/integration/runtime/current/ratelimit/config/basic.yaml"},
		script: `foo hello=world -> OK none`,
	},
	{
		name: "no rule", files: []string{"test/integration/runtime/current/ratelimit/config/basic.yaml"},
		script: `basic hello=world -> OK none
			basic key1=foo,hello=world -> OK none`,
	},
	{
		name: "50 a second", files: []string{"test/integration/runtime/current/ratelimit/config/basic.yaml"},
		script: `basic key1=foo -> OK 49
			basic key1=foo -> OK 48
			basic key1=bar -> OK 49
			wait 1s
			basic key1=foo -> OK 49`,
	},
	{
		name: "25 requests of 20 a minute", files: []string{"test/integration/runtime/current/ratelimit/config/another.yaml"},
		script: lines(25, func(i int) string {
			if i < 20 {
				return fmt.Sprintf("another key2=1234 -> OK %d", 19-i)
			}
			return "another key2=1234 -> OVER_LIMIT over"
		}) + `wait 1m
			another key2=1234 -> OK 19`,
	},
	{
		name: "15 requests of 20 a minute and 10 an hour", files: []string{"test/integration/runtime/current/ratelimit/config/another.yaml"},
		script: lines(15, func(i int) string {
			if i < 10 {
				return fmt.Sprintf("another key2=a key3=a -> OK %d %d", 19-i, 9-i)
			}
			return fmt.Sprintf("another key2=a key3=a -> OVER_LIMIT %d over", 19-i)
		}),
		// A rejected request costs nothing.
		exact: lines(15, func(i int) string {
			if i < 10 {
				return fmt.Sprintf("another key2=a key3=a -> OK %d %d", 19-i, 9-i)
			}
			return "another key2=a key3=a -> OVER_LIMIT 10 over"
		}),
	},
	{
		name: "share_threshold", files: []string{"test/integration/runtime/current/ratelimit/config/share_threshold.yaml"},
		script: lines(10, func(i int) string {
			return fmt.Sprintf("share-threshold-test files=files/a.pdf files_no_share=files_no_share/%d -> OK %d 9", i, 9-i)
		}) + `share-threshold-test files=files/b.csv files_no_share=files_no_share/c -> OVER_LIMIT over 9
			share-threshold-test files=files/c/d files_no_share=files_no_share/c -> OVER_LIMIT over 8`,
		exact: lines(10, func(i int) string {
			return fmt.Sprintf("share-threshold-test files=files/a.pdf files_no_share=files_no_share/%d -> OK %d 9", i, 9-i)
		}) + `share-threshold-test files=files/b.csv files_no_share=files_no_share/c -> OVER_LIMIT over 10
			share-threshold-test files=files/c/d files_no_share=files_no_share/c -> OVER_LIMIT over 10`,
	},
	{
		name: "hits", files: []string{"test/integration/runtime/current/ratelimit/config/another.yaml"},
		// 15 and 8 are more than 20; what was left is gone.
		script: `another key2=a+15 -> OK 5
			another key2=a+8 -> OVER_LIMIT over
			another key2=a+5 -> OVER_LIMIT over`,
		exact: `another key2=a+15 -> OK 5
			another key2=a+8 -> OVER_LIMIT over
			another key2=a+5 -> OK 0`,
	},
	{
		name: "trigger-ratelimit", files: []string{"examples/ratelimit/config/example.yaml"},
		script: `rl foo=pelle,baz=not-so-shady -> OK 2
			rl foo=pelle,baz=not-so-shady -> OK 1
			rl foo=pelle,baz=not-so-shady -> OK 0
			rl foo=pelle,baz=not-so-shady -> OVER_LIMIT over`,
	},
	{
		name: "trigger-shadow-mode-key", files: []string{"examples/ratelimit/config/example.yaml"},
		script: `rl foo=pelle,baz=shady -> OK 2
			rl foo=pelle,baz=shady -> OK 1
			rl foo=pelle,baz=shady -> OK 0
			rl foo=pelle,baz=shady -> OK 0
			rl foo=pelle,baz=shady -> OK 0`,
	},
	{
		name: "value-included-in-stats-key-when-unspecified", files: []string{"examples/ratelimit/config/example.yaml"},
		script: `rl unspec=unspecified_value -> OK 1
			rl unspec=unspecified_value -> OK 0
			rl unspec=unspecified_value -> OVER_LIMIT over`,
	},
	{
		name: "unlimited", files: []string{"examples/ratelimit/config/example.yaml"},
		script: lines(5, func(int) string { return "rl qux=a foo=a,bay=b -> OK unlimited unlimited" }),
	},
	{
		name: "replaces: raises a limit", files: []string{"examples/ratelimit/config/example.yaml"},
		script: `rl foo=bkthomps,bar=banned -> OVER_LIMIT over
			rl foo=bkthomps,bar=banned source_cluster=proxy,destination_cluster=mock -> OVER_LIMIT over 0
			rl foo=bkthomps,bar=banned source_cluster=proxy,destination_cluster=override -> OK none 1
			rl foo=bkthomps,bar=banned source_cluster=proxy,destination_cluster=override -> OK none 0
			rl foo=bkthomps,bar=banned source_cluster=proxy,destination_cluster=override -> OVER_LIMIT none over`,
		exact: `rl foo=bkthomps,bar=banned -> OVER_LIMIT over
			rl foo=bkthomps,bar=banned source_cluster=proxy,destination_cluster=mock -> OVER_LIMIT over 1
			rl foo=bkthomps,bar=banned source_cluster=proxy,destination_cluster=override -> OK none 1
			rl foo=bkthomps,bar=banned source_cluster=proxy,destination_cluster=override -> OK none 0
			rl foo=bkthomps,bar=banned source_cluster=proxy,destination_cluster=override -> OVER_LIMIT none over`,
	},
	{
		name: "replaces: does not change the limit", files: []string{"examples/ratelimit/config/example.yaml"},
		script: `rl foo=my_foo,bar=bkthomps source_cluster=proxy,destination_cluster=bkthomps -> OK none 1
			rl foo=my_foo,bar=bkthomps source_cluster=proxy,destination_cluster=bkthomps -> OK none 0
			rl foo=my_foo,bar=bkthomps source_cluster=proxy,destination_cluster=bkthomps -> OVER_LIMIT none over
			rl foo=my_foo,bar=bkthomps source_cluster=proxy,destination_cluster=not_bkthomps -> OK 0 none
			rl foo=my_foo,bar=bkthomps source_cluster=proxy,destination_cluster=not_bkthomps -> OVER_LIMIT over none
			rl foo=my_foo,bar=bkthomps source_cluster=proxy,destination_cluster=bkthomps -> OVER_LIMIT none over`,
	},
	{
		name: "replaces: several limits", files: []string{"examples/ratelimit/config/example.yaml"},
		script: lines(4, func(i int) string {
			return fmt.Sprintf("rl foo=my_foo,bar=bkthomps source_cluster=proxy,destination_cluster=fake category=account -> OK none none %d", 3-i)
		}) + `rl foo=my_foo,bar=bkthomps source_cluster=proxy,destination_cluster=fake category=account -> OVER_LIMIT none none over
			rl foo=foo_2,bar=bkthomps -> OK 0
			rl foo=foo_2,bar=bkthomps -> OVER_LIMIT over
			rl foo=foo_3,bar=bar_3 source_cluster=proxy,destination_cluster=fake -> OK 2 1
			rl foo=foo_3,bar=bar_3 source_cluster=proxy,destination_cluster=fake -> OK 1 0
			rl foo=foo_3,bar=bar_3 source_cluster=proxy,destination_cluster=fake -> OVER_LIMIT 0 over
			rl foo=my_foo,bar=bkthomps source_cluster=proxy,destination_cluster=fake category=account -> OVER_LIMIT none none over`,
		exact: lines(4, func(i int) string {
			return fmt.Sprintf("rl foo=my_foo,bar=bkthomps source_cluster=proxy,destination_cluster=fake category=account -> OK none none %d", 3-i)
		}) + `rl foo=my_foo,bar=bkthomps source_cluster=proxy,destination_cluster=fake category=account -> OVER_LIMIT none none over
			rl foo=foo_2,bar=bkthomps -> OK 0
			rl foo=foo_2,bar=bkthomps -> OVER_LIMIT over
			rl foo=foo_3,bar=bar_3 source_cluster=proxy,destination_cluster=fake -> OK 2 1
			rl foo=foo_3,bar=bar_3 source_cluster=proxy,destination_cluster=fake -> OK 1 0
			rl foo=foo_3,bar=bar_3 source_cluster=proxy,destination_cluster=fake -> OVER_LIMIT 1 over
			rl foo=my_foo,bar=bkthomps source_cluster=proxy,destination_cluster=fake category=account -> OVER_LIMIT none none over`,
	},
	{
		name: "quota", files: []string{quotas},
		script: `rl service=service_1 service=service_2 -> OK 0 1
			rl service=service_1 service=service_2 -> OK over 0
			rl service=service_1 service=service_2 -> OVER_LIMIT over over
			wait 1m
			rl service=service_1 service=service_2 -> OK 0 1`,
	},
	{
		// Requests ask with 0 hits, and report 1 when they are done. The other server admits one more than the limit.
		name: "token-quota", files: []string{quotas},
		script: `rl service=service_2+0 -> OK 2
			rl service=service_2+1 -> OK 1
			rl service=service_2+0 -> OK 1
			rl service=service_2+1 -> OK 0
			rl service=service_2+0 -> OK 0
			rl service=service_2+1 -> OVER_LIMIT over
			rl service=service_2+0 -> OVER_LIMIT over
			wait 1m
			rl service=service_2+0 -> OK 2`,
		exact: `rl service=service_2+0 -> OK 2
			rl service=service_2+1 -> OK 1
			rl service=service_2+0 -> OK 1
			rl service=service_2+1 -> OK 0
			rl service=service_2+0 -> OVER_LIMIT over
			wait 1m
			rl service=service_2+0 -> OK 2`,
	},
	{
		// As long as a service has quota, the request passes, and the proxy takes a service that has.
		name: "multiservice-tokenquota", files: []string{quotas},
		script: `rl service=service_1+0 service=service_2+0 -> OK 1 2
			rl service=service_1+1 -> OK 0
			rl service=service_1+0 service=service_2+0 -> OK 0 2
			rl service=service_1+1 -> OVER_LIMIT over
			rl service=service_1+0 service=service_2+0 -> OK over 2
			rl service=service_2+1 -> OK 1
			rl service=service_1+0 service=service_2+0 -> OK over 1
			rl service=service_2+1 -> OK 0
			rl service=service_1+0 service=service_2+0 -> OK over 0
			rl service=service_2+1 -> OVER_LIMIT over
			rl service=service_1+0 service=service_2+0 -> OVER_LIMIT over over`,
		exact: `rl service=service_1+0 service=service_2+0 -> OK 1 2
			rl service=service_1+1 -> OK 0
			rl service=service_1+0 service=service_2+0 -> OK over 2
			rl service=service_2+1 -> OK 1
			rl service=service_1+0 service=service_2+0 -> OK over 1
			rl service=service_2+1 -> OK 0
			rl service=service_1+0 service=service_2+0 -> OVER_LIMIT over over`,
	},
}
