package limiter

// KeyRejections are the rejections of one key. While up to 1024 keys are rejected, and up to 100,000 calls a second,
// Rejections is the true count and Error is 0.
//
// If there are more keys, they take turns in 1024 places by the Space-Saving algorithm of Metwally, Agrawal and El
// Abbadi. The true count is then from Rejections-Error to Rejections, and Error is at most a 1024th of all rejections.
// A key with more rejections than that is always among the places.
//
// If more than 100,000 calls a second are rejected, one in 8 is counted, drawn at random, with a weight of 8; from a
// million on, one in 64. Then the numbers are estimates: of n rejections, the standard deviation is √(7n) or √(63n),
// which for 10,000 rejections is 3 % or 8 %. A rejected call never waits for the counting of another one. If two meet,
// both can be counted for the key of the second.
type KeyRejections struct {
	Key        string // as [fmt.Sprint] writes the key; cut to 200 bytes, with "…" at the end if it was longer
	Rejections int64
	Error      int64
}

// TopRejected returns the n keys with the most rejected calls, the most first; fewer if fewer were rejected, and 1024 at
// most. Waiters that were rejected count, too. See [KeyRejections] for what the numbers mean.
//
// Counting begins with the first call, also if n is 0, and ends by itself a minute after the last one; the counts are then
// forgotten. While it counts, it takes about 60 kB more memory, and up to 1024 keys stay in memory after their
// partitions were forgotten. Keys that are strings are cut to 200 bytes there. After Close there are no counts.
func (p *PartitionedLimiter[R, K]) TopRejected(n int) []KeyRejections {
	top := p.rejections.Top(n)
	all := make([]KeyRejections, len(top))
	for i, c := range top {
		all[i] = KeyRejections{Key: c.Text(), Rejections: c.Count, Error: c.Error}
	}
	return all
}
