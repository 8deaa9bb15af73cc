module github.com/weir-go/weir/bench

go 1.26.0

require (
	github.com/failsafe-go/failsafe-go v0.9.8
	github.com/sethvargo/go-limiter v1.1.0
	github.com/weir-go/weir v0.0.0
	golang.org/x/sync v0.24.0
	golang.org/x/time v0.16.0
)

require github.com/bits-and-blooms/bitset v1.24.4 // indirect

replace github.com/weir-go/weir => ../
