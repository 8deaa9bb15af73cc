module github.com/weir-go/weir/cmd/weir

go 1.26.0

replace (
	github.com/weir-go/weir => ../../
	github.com/weir-go/weir/store/weirpostgres => ../../store/weirpostgres
	github.com/weir-go/weir/store/weirredis => ../../store/weirredis
)

require (
	github.com/go-jose/go-jose/v4 v4.1.8
	github.com/golang-jwt/jwt/v5 v5.3.1
	github.com/stretchr/testify v1.12.1
	github.com/weir-go/weir v0.0.0
	go.uber.org/goleak v1.3.0
)

require (
	github.com/bits-and-blooms/bitset v1.24.4 // indirect
	github.com/failsafe-go/failsafe-go v0.9.8 // indirect
	github.com/influxdata/tdigest v0.0.1 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	go.yaml.in/yaml/v4 v4.0.0 // indirect
)
