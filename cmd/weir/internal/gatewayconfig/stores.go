package gatewayconfig

import "time"

// A Store is where the limits are that all gateways with the same store share. It has one of Redis and Postgres.
type Store struct {
	Redis        string        `yaml:"redis,omitempty" doc:"The URL of a Redis server, such as redis://redis.internal:6379/0. This or postgres must be set."`
	Postgres     string        `yaml:"postgres,omitempty" doc:"The URL of a PostgreSQL database, such as postgres://weir@db.internal/limits. This or redis must be set."`
	PasswordFile string        `yaml:"password_file,omitempty" doc:"The file with the password, so that the URL has none."`
	Prefix       string        `yaml:"prefix,omitempty" doc:"For Redis: what the names of the keys begin with; that of package weirredis unless set."`
	Schema       string        `yaml:"schema,omitempty" doc:"For PostgreSQL: the schema with the tables; weir unless set."`
	Migrate      bool          `yaml:"migrate,omitempty" doc:"For PostgreSQL: make the tables at the start if they are not there."`
	CallTimeout  time.Duration `yaml:"call_timeout,omitempty" doc:"How long a call of the store can take before the store counts as unavailable; that of package store unless set."`
}
