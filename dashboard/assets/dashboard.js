// Keeps an open page up to date: by one stream of events, or, if that is refused, by asking every 5 s. The server makes
// all the HTML; without this script the page is the same and stands still.
(() => {
	"use strict";
	const url = document.body.dataset.stream;
	const live = document.getElementById("live");
	const time = document.getElementById("time");
	const notice = document.getElementById("notice");
	const sections = document.getElementById("sections");
	const title = document.title;
	let source = null, timer = null, last = Date.now(), paused = false, refused = false;

	const say = (state, text) => {
		if (live.dataset.state !== state) live.dataset.state = state;
		if (live.textContent !== text) live.textContent = text;
	};

	// morph changes the node a to be as b, and keeps what is the same: focus, selection and scroll positions stay.
	const morph = (a, b) => {
		if (a.nodeType !== b.nodeType || a.nodeName !== b.nodeName) return a.replaceWith(b);
		if (a.nodeType !== Node.ELEMENT_NODE) {
			if (a.nodeValue !== b.nodeValue) a.nodeValue = b.nodeValue;
			return;
		}
		for (const { name } of [...a.attributes]) if (!b.hasAttribute(name)) a.removeAttribute(name);
		for (const { name, value } of b.attributes) if (a.getAttribute(name) !== value) a.setAttribute(name, value);
		morphChildren(a, b);
	};
	const keyOf = (n) => (n.nodeType === Node.ELEMENT_NODE ? n.dataset.key : undefined);
	const morphChildren = (a, b) => {
		const keyed = new Map();
		for (const n of a.children) if (keyOf(n) !== undefined && !keyed.has(keyOf(n))) keyed.set(keyOf(n), n);
		let at = a.firstChild;
		for (const want of [...b.childNodes]) {
			const key = keyOf(want), mine = keyed.get(key);
			if (mine) {
				keyed.delete(key);
				if (mine === at) at = at.nextSibling;
				else if (a.moveBefore) a.moveBefore(mine, at); // keeps the focus
				else a.insertBefore(mine, at);
				morph(mine, want);
			} else if (key === undefined && at && keyOf(at) === undefined) {
				const next = at.nextSibling;
				morph(at, want);
				at = next;
			} else {
				a.insertBefore(want, at);
			}
		}
		while (at) {
			const next = at.nextSibling;
			at.remove();
			at = next;
		}
	};
	const put = (id, html) => {
		const template = document.createElement("template");
		template.innerHTML = html;
		let section = document.getElementById(id);
		if (!section) {
			section = document.createElement("section");
			section.id = id;
			sections.append(section);
		}
		const focused = document.activeElement;
		morphChildren(section, template.content);
		if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
	};

	const tick = (t) => {
		last = Date.now();
		time.dateTime = t.time;
		time.textContent = t.time.slice(11, 19);
		document.title = (t.trouble ? "(" + t.trouble + ") " : "") + title;
	};

	const open = () => {
		close();
		if (paused || document.hidden) return;
		if (refused) return poll();
		source = new EventSource(url);
		source.addEventListener("section", (e) => { const s = JSON.parse(e.data); put(s.id, s.html); });
		source.addEventListener("tick", (e) => { tick(JSON.parse(e.data)); say("live", "live"); });
		source.addEventListener("refused", (e) => {
			refused = true;
			notice.textContent = JSON.parse(e.data);
			notice.hidden = false;
			open();
		});
		source.onerror = () => {
			if (source && source.readyState === EventSource.CLOSED) { // an answer that is no stream: a login, an error, a proxy
				refused = true;
				open();
			} else {
				say("lost", "connecting");
			}
		};
	};
	const poll = async () => {
		clearTimeout(timer);
		try {
			const r = await fetch(location.href, { headers: { Accept: "text/html" }, credentials: "same-origin" });
			if (!r.ok) throw new Error(r.status);
			const page = new DOMParser().parseFromString(await r.text(), "text/html");
			if (paused || document.hidden) return;
			for (const s of page.querySelectorAll("#sections > section")) put(s.id, s.innerHTML);
			const t = page.getElementById("time");
			if (!t) throw new Error("no page");
			tick({ time: t.dateTime, trouble: Number(page.body.dataset.trouble) });
			say("poll", "every 5 s");
		} catch {
			if (paused || document.hidden) return;
			say("lost", "no answer");
		}
		timer = setTimeout(poll, 5000);
	};
	const close = () => {
		clearTimeout(timer);
		if (source) source.close();
		source = null;
	};

	// A page that is not seen has no stream: a browser opens only six connections to one host.
	document.addEventListener("visibilitychange", () => { if (document.hidden) close(); else open(); });
	addEventListener("pagehide", close);
	addEventListener("pageshow", (e) => { if (e.persisted) open(); });

	const pause = document.createElement("button");
	pause.type = "button";
	pause.className = "pause";
	pause.textContent = "Pause";
	pause.addEventListener("click", () => {
		paused = !paused;
		pause.textContent = paused ? "Resume" : "Pause";
		if (paused) { close(); say("still", "paused"); } else { last = Date.now(); say("lost", "connecting"); open(); }
	});
	live.parentElement.append(" ", pause);
	setInterval(() => {
		const age = Math.round((Date.now() - last) / 1000);
		if (!paused && !document.hidden && age > 12) say("lost", "no news for " + age + " s");
	}, 1000);
	say("lost", "connecting");
	open();
})();
