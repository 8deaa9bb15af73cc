// Package jobs throttles background jobs that run on River (github.com/riverqueue/river) with PostgreSQL.
package jobs
