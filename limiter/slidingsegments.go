package limiter

import "slices"

// A pastSegment is a segment before the current one in which permits were taken.
type pastSegment struct {
	line  int64 // where it begins
	taken int64 // the window's taken when the segment ended; in a page, less the page's base
}

// pastSegments are the segments of a window before the current one in which permits were taken, the oldest first. Their
// lines and their sums ascend, so both are found by binary search. They are kept in pages of which all but the last are
// full: adding a segment never copies more than a page, and a refund changes the later sums of one page and the bases
// of the later pages.
type pastSegments struct {
	pages []segmentPage
	first int32 // in the first page, how many have left the window
	count int32
}

type segmentPage struct {
	base     int64
	segments []pastSegment
}

const (
	pageBits = 8
	pageSize = 1 << pageBits
	// firstPageSize is the size with which the first page begins. If each key has a window, most windows never need more.
	firstPageSize = 4
)

// get returns the i-th oldest segment.
func (p *pastSegments) get(i int) pastSegment {
	i += int(p.first)
	page := &p.pages[i>>pageBits]
	s := page.segments[i&(pageSize-1)]
	return pastSegment{s.line, page.base + s.taken}
}

// newest returns the newest segment. There is one.
func (p *pastSegments) newest() pastSegment { return p.get(int(p.count) - 1) }

// takenUntil returns how many permits were ever taken up to the end of the i-th oldest segment, or expired if i is -1.
func (p *pastSegments) takenUntil(i int, expired int64) int64 {
	if i < 0 {
		return expired
	}
	return p.get(i).taken
}

// push adds the newest segment.
func (p *pastSegments) push(line, taken int64) {
	if last := len(p.pages) - 1; last >= 0 {
		page := &p.pages[last]
		if n := len(page.segments); n < cap(page.segments) {
			page.segments = page.segments[:n+1]
			page.segments[n] = pastSegment{line, taken - page.base}
			p.count++
			return
		}
	}
	p.makeRoom()
	p.push(line, taken)
}

// makeRoom makes room for one more segment in the last page.
func (p *pastSegments) makeRoom() {
	last := len(p.pages) - 1
	if last < 0 {
		p.pages = []segmentPage{{segments: make([]pastSegment, 0, firstPageSize)}}
		return
	}
	page := &p.pages[last]
	switch size := cap(page.segments); {
	case last == 0 && int(p.first) > size/4:
		page.segments = page.segments[:copy(page.segments, page.segments[p.first:])]
		p.first = 0
	case size < pageSize:
		page.segments = append(make([]pastSegment, 0, 2*size), page.segments...)
	default:
		p.pages = append(p.pages, segmentPage{segments: make([]pastSegment, 0, pageSize)})
	}
}

// merge is push for permits that can belong to the newest segment.
func (p *pastSegments) merge(line, taken int64) {
	if p.count > 0 && p.newest().line == line {
		p.pop()
	}
	p.push(line, taken)
}

// pop removes the newest segment.
func (p *pastSegments) pop() {
	last := len(p.pages) - 1
	page := &p.pages[last]
	page.segments = page.segments[:len(page.segments)-1]
	p.count--
	if len(page.segments) == 0 && last > 0 {
		p.pages = p.pages[:last]
	}
}

// expire removes the segments that began at line-age or before. It returns the new value of the window's expired.
func (p *pastSegments) expire(line, age, expired int64) int64 {
	for len(p.pages) > 0 {
		page, i := &p.pages[0], int(p.first)
		for i < len(page.segments) && line-page.segments[i].line >= age {
			i++
		}
		if n := int32(i) - p.first; n > 0 {
			expired = page.base + page.segments[i-1].taken
			p.first += n
			p.count -= n
		}
		if i < len(page.segments) || len(p.pages) == 1 {
			break
		}
		p.dropPages(line, age)
	}
	return expired
}

// dropPages removes the first page, all of whose segments have expired, and the following pages that have wholly
// expired. A page has wholly expired if the first segment of the next page has expired. expire continues with the first
// page that is left.
func (p *pastSegments) dropPages(line, age int64) {
	n := 1
	for n < len(p.pages)-1 && line-p.pages[n+1].segments[0].line >= age {
		n++
	}
	p.pages = slices.Delete(p.pages, 0, n)
	p.count -= int32((n - 1) * pageSize)
	p.first = 0
}

// firstYounger returns the index of the first segment that begins after line-age. The search begins at index from.
func (p *pastSegments) firstYounger(from int, line, age int64) int {
	return p.search(from, byLine, line, 1-age)
}

// firstHolding returns the index of the first segment by whose end at least that many permits were taken, not counting
// expired ones. The search begins at index from.
func (p *pastSegments) firstHolding(from int, permits, expired int64) int {
	return p.search(from, byTaken, expired, permits)
}

// A sortKey is what search compares.
type sortKey uint8

const (
	byLine sortKey = iota
	byTaken
)

// search returns the index of the first segment whose key is at least origin + distance. The search begins at index
// from, and looks first at that segment and then at its page, where the result often is.
func (p *pastSegments) search(from int, by sortKey, origin, distance int64) int {
	if from == int(p.count) {
		return from
	}
	from += int(p.first)
	low, high := from>>pageBits, len(p.pages)-1
	i := from & (pageSize - 1)
	if p.pages[low].reaches(i, by, origin, distance) {
		return from - int(p.first)
	}
	if p.pages[low].reaches(pageSize-1, by, origin, distance) {
		high = low
	}
	for low < high {
		if mid := (low + high) / 2; p.pages[mid].reaches(pageSize-1, by, origin, distance) {
			high = mid
		} else {
			low, i = mid+1, 0
		}
	}
	page := &p.pages[low]
	for end := len(page.segments); i < end; {
		if mid := (i + end) / 2; page.reaches(mid, by, origin, distance) {
			end = mid
		} else {
			i = mid + 1
		}
	}
	return low<<pageBits + i - int(p.first)
}

// reaches reports whether the key of the i-th segment of a page, or of its last segment if the page has fewer, is at
// least origin + distance.
func (page *segmentPage) reaches(i int, by sortKey, origin, distance int64) bool {
	s := &page.segments[min(i, len(page.segments)-1)]
	if by == byLine {
		return s.line-origin >= distance
	}
	return page.base+s.taken-origin >= distance
}

// giveBack takes n permits, or as many as it has, out of the segment that begins at line. It returns how many.
func (p *pastSegments) giveBack(n, line, expired int64) int64 {
	i := p.firstYounger(0, line, 1)
	if i == int(p.count) || p.get(i).line != line {
		return 0
	}
	n = min(n, p.get(i).taken-p.takenUntil(i-1, expired))
	i += int(p.first)
	segments, later := p.pages[i>>pageBits].segments, p.pages[i>>pageBits+1:]
	for k := i & (pageSize - 1); k < len(segments); k++ {
		segments[k].taken -= n
	}
	for k := range later {
		later[k].base -= n
	}
	return n
}

// giveBackNewest takes n permits out of the newest segments; there are that many.
func (p *pastSegments) giveBackNewest(n, expired int64) {
	for n > 0 {
		newest := p.newest().taken
		if has := newest - p.takenUntil(int(p.count)-2, expired); has <= n {
			p.pop()
			n -= has
			continue
		}
		segments := p.pages[len(p.pages)-1].segments
		segments[len(segments)-1].taken -= n
		return
	}
}

// dropExpired removes the oldest segments as long as all of their permits have expired. Permits of the oldest one that is
// left can have expired, too.
func (p *pastSegments) dropExpired(expired int64) {
	for p.count > 0 && p.get(0).taken <= expired {
		p.first++
		p.count--
		if int(p.first) == len(p.pages[0].segments) && len(p.pages) > 1 {
			p.pages = slices.Delete(p.pages, 0, 1)
			p.first = 0
		}
	}
}

// trim removes the newest segments as long as they have no permits.
func (p *pastSegments) trim(expired int64) {
	for p.count > 0 && p.newest().taken == p.takenUntil(int(p.count)-2, expired) {
		p.pop()
	}
	if p.count == 0 {
		*p = pastSegments{}
	}
}

// shift moves all segments by that much time.
func (p *pastSegments) shift(by int64) {
	for _, page := range p.pages {
		for i := range page.segments {
			page.segments[i].line += by
		}
	}
}
