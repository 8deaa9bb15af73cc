module github.com/weir-go/weir/examples

go 1.26.0

replace github.com/weir-go/weir => ../

require github.com/weir-go/weir v0.0.0-00010101000000-000000000000

require go.yaml.in/yaml/v4 v4.0.0 // indirect
