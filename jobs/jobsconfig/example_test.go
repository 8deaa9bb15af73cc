package jobsconfig_test

import (
	"fmt"

	"github.com/weir-go/weir/jobs/jobsconfig"
)

func ExampleParse() {
	config, err := jobsconfig.Parse([]byte(`
limiters:
  - semaphore: smtp
    max_count: 10
  - dynamic_window: newsletter
    interval: 1h
    capacity: 20000
    min_limit: 1000
throttles:
  - kinds: [newsletter_*]
    limits:
      - semaphore: smtp
      - dynamic_window: newsletter
        key: "{tenant}"
`))
	if err != nil {
		panic(err)
	}
	fmt.Println(len(config.Limiters), "limiters, for", config.Throttles[0].Kinds)
	// Output: 2 limiters, for [newsletter_*]
}
