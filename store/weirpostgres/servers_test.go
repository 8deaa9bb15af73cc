package weirpostgres

import (
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/weirpostgres/pgmigrate"
	"github.com/weir-go/weir/tools/testserver"
)

// documentedRole makes a role with the rights of the docs. It returns a schema and a pool of connections that are this role.
func documentedRole(t *testing.T) (schema string, pool *pgxpool.Pool) {
	t.Helper()
	server := postgres(t)
	admin := connect(t, server.URL, nil)
	schema = freshSchema(t, admin)
	page, err := os.ReadFile("../../docs/shared-limits.md")
	require.NoError(t, err)
	grants := regexp.MustCompile(`(?m)^grant .* to app;$`).FindAllString(string(page), -1)
	require.Len(t, grants, 4)
	role := strings.ToLower(schema) + "_app"
	exec(t, admin, "drop role if exists "+role)
	exec(t, admin, "create role "+role+" login")
	t.Cleanup(func() { exec(t, admin, "drop owned by "+role); exec(t, admin, "drop role "+role) })
	for _, grant := range grants {
		grant = strings.NewReplacer(" weir.", ` "weir".`, "schema weir", `schema "weir"`, "to app", "to "+role).Replace(grant)
		exec(t, admin, pgmigrate.InSchema(grant, schema))
	}
	return schema, connect(t, server.URL, func(c *pgxpool.Config) { c.ConnConfig.User = role })
}

func TestSuite_WithDocumentedGrants(t *testing.T) {
	t.Parallel()
	schema, pool := documentedRole(t)
	t.Run("suite", func(t *testing.T) { runSuite(t, pool, BackendOptions{Schema: schema}, false) })
	b := newBackend(t, pool, BackendOptions{Schema: schema})
	_, _, err := b.sweeper.sweepRange(t.Context(), 0, 10)
	require.NoError(t, err)
	require.NoError(t, Migrate(t.Context(), pool, schema), "there is nothing to do")
	require.Error(t, Migrate(t.Context(), pool, schema+"_other"))
}

func TestBackend_OverTLS(t *testing.T) {
	t.Parallel()
	certificate, key := testserver.Certificate(t)
	other, _ := testserver.Certificate(t)
	server := testserver.NewPostgres(t, "fsync=off")
	admin := connect(t, server.URL, nil)
	schema := freshSchema(t, admin)
	for file, from := range map[string]string{"server.crt": certificate, "server.key": key} {
		pem, err := os.ReadFile(from)
		require.NoError(t, err)
		// The server writes them, because it trusts only its own user with a key.
		exec(t, admin, "create table pem as select unnest(string_to_array('"+strings.TrimSpace(string(pem))+"', chr(10)))")
		exec(t, admin, "copy pem to program 'umask 077; cat > "+file+"'")
		exec(t, admin, "drop table pem")
	}
	exec(t, admin, "alter system set ssl = on")
	exec(t, admin, "select pg_reload_conf()")
	open := func(trusted string) *Backend {
		u := strings.Replace(server.URL, "sslmode=disable", "sslmode=verify-full&sslrootcert="+url.QueryEscape(trusted), 1)
		return newBackend(t, connect(t, u, nil), BackendOptions{Schema: schema})
	}
	b := open(certificate)
	require.Eventually(t, func() bool { return b.pool.Ping(t.Context()) == nil }, 10*time.Second, 10*time.Millisecond)
	notices := listen(t, b)
	d := bucket(t, b, "a", 10, 1, 3_600_000_000)
	done, err := b.Define(t.Context(), 0, d)
	require.NoError(t, err)
	require.True(t, done)
	assert.Equal(t, backend.Notice{Name: "a"}, <-notices)
	batch := take(d, "k", 3)
	require.NoError(t, b.Decide(t.Context(), []*backend.Batch{batch}))
	require.EqualValues(t, 3, batch.State.Missing)
	require.EqualValues(t, 1, count(t, b.pool, "select count(*) from pg_stat_ssl where ssl and pid = pg_backend_pid()"))

	err = open(other).Decide(t.Context(), []*backend.Batch{take(d, "k", 3)})
	require.ErrorContains(t, err, "certificate signed by unknown authority")
}

// A standby that was in step is promoted: it has everything, notices arrive again, and no more than the limit is granted.
func TestStore_StandbyIsPromoted(t *testing.T) {
	t.Parallel()
	primary := testserver.NewPostgres(t, "fsync=off")
	require.NoError(t, Migrate(t.Context(), connect(t, primary.URL, nil), ""))
	standby := testserver.NewStandby(t, primary)
	admin := connect(t, standby.URL, nil)
	both := strings.Replace(primary.URL, primary.Addr(), primary.Addr()+","+standby.Addr(), 1) + "&target_session_attrs=read-write"
	s, err := New(connect(t, both, nil), &Options{Options: store.Options{CallTimeout: 5 * time.Second, ProbeInterval: 100 * time.Millisecond}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	l, err := s.FixedWindow("a", limiter.FixedWindowOptions{PermitLimit: 100, Window: 10000 * time.Hour}, nil)
	require.NoError(t, err)
	granted := 0
	grants := func() bool {
		lease, err := l.TryAcquire(t.Context(), 1)
		require.NoError(t, err)
		if lease.Acquired() {
			granted++
		}
		return lease.Acquired()
	}
	for range 60 {
		require.True(t, grants())
	}
	require.Eventually(t, func() bool { return s.Health().Listening }, 10*time.Second, time.Millisecond)
	require.Eventually(t, func() bool {
		return count(t, admin, "select coalesce(sum(missing), 0)::bigint from weir.states where name = 'a'") == 60
	}, 10*time.Second, 10*time.Millisecond)

	primary.Kill()
	killed := time.Now()
	require.Eventually(t, func() bool { return !grants() }, 10*time.Second, time.Millisecond)
	exec(t, admin, "select pg_promote()")
	require.Eventually(t, grants, 30*time.Second, 10*time.Millisecond)
	t.Logf("the new primary decides after %v", time.Since(killed))
	require.Eventually(t, func() bool { return s.Health().Err == nil && s.Health().Listening }, 60*time.Second, 10*time.Millisecond)
	for grants() {
	}
	require.LessOrEqual(t, granted, 100)
	require.GreaterOrEqual(t, granted, 97, "calls that ended with the primary can have taken a permit")
}
