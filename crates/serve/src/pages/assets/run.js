"use strict";
// shows what happens in a run: its events come as they happen, after those that are kept of it
(() => {
  const by = (id) => document.getElementById(id);
  const say = (id, text) => { if (by(id).textContent !== text) by(id).textContent = text; };
  const run = by("about").dataset.run;
  const { time, rate, short, plain, css, axis, logarithmic, marks: marked } = figures;

  // how it stands
  let ended = false, least = 0, most = 0, done = 0, share = 0, state = by("about").dataset.state;

  // the seconds, trial after trial: where the trial that is made begins, and where the next one may
  let trial = 0, base = 0, next = 0, cell = "";
  const marks = [];

  class Lines {
    constructor(id, show, names, overDecades) {
      Object.assign(this, { id, show, names, overDecades, x: [], y: names.map(() => []), plot: null, stale: false });
    }
    // what there is at a second; a later word on the same second counts
    push(x, values, otherwise = null) {
      for (const name of Object.keys(values)) {
        if (this.names.includes(name)) continue;
        this.names.push(name);
        this.y.push(this.x.map(() => null));
        this.plot?.destroy();
        this.plot = null;
      }
      const last = this.x.length - 1;
      if (last >= 0 && x < this.x[last]) return;
      const at = last >= 0 && x === this.x[last] ? last : last + 1;
      this.x[at] = x;
      this.names.forEach((name, line) => (this.y[line][at] = values[name] ?? otherwise));
      this.stale = true;
    }
    draw() {
      if (!this.x.length) return;
      const place = by(this.id).querySelector(".plot");
      if (!this.stale && this.plot?.width === place.clientWidth) return;
      this.stale = false;
      if (this.plot && this.plot.width !== place.clientWidth) { this.plot.destroy(); this.plot = null; }
      const data = [this.x, ...this.y];
      if (this.plot) { this.plot.setData(data); return; }
      const { show } = this;
      place.textContent = "";
      this.plot = new uPlot({
        width: place.clientWidth,
        height: 220,
        scales: {
          // the same for all
          x: { time: false, range: () => [0, Math.max(10, ...all.map((lines) => lines.x.at(-1) ?? 0))] },
          y: this.overDecades ? { distr: 3 } : { range: (u, low, high) => [0, (high || 1) * 1.08] },
        },
        axes: [{ ...axis(), incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000] },
          { ...axis(), size: 66, values: (u, splits) => splits.map((value) => (value == null ? null : short(value))),
            ...(this.overDecades ? logarithmic((value) => plain(show(value))) : {}) }],
        series: [{ label: "second" }, ...this.names.map((name, line) => ({
          label: name, stroke: css("--c" + (line % 8)), width: 1.6, value: (u, value) => (value == null ? "–" : show(value)),
        }))],
        hooks: { draw: [marked(() => marks)] },
        legend: { live: matchMedia("(hover: hover)").matches },
        cursor: { drag: { x: true, y: false } },
      }, data, place);
    }
    // a line ends with its trial
    part(x) {
      if (!this.x.length || x <= this.x.at(-1)) return;
      this.x.push(x);
      this.y.forEach((line) => line.push(null));
    }
    clear() { this.x = []; this.y = this.names.map(() => []); this.again(); }
    again() { this.plot?.destroy(); this.plot = null; this.stale = true; }
  }
  const level = new Lines("c-gauge", rate, []);
  const rates = new Lines("c-rate", rate, []);
  const times = new Lines("c-times", time, ["p50", "p99"], true);
  const cores = new Lines("c-cores", (value) => value.toFixed(2), ["clients", "machine"]);
  const all = [rates, times, cores, level];

  let due = false;
  const draw = () => {
    if (due || document.hidden) return;
    due = true;
    requestAnimationFrame(() => {
      due = false;
      // first all that there is, as each takes its share of the width
      all.forEach((lines) => { by(lines.id).hidden = !lines.x.length; });
      all.forEach((lines) => lines.draw());
    });
  };

  const progress = () => { by("progress").value = most ? Math.min(1, (done + share) / most) : 0; };
  const span = (seconds) => (seconds < 99.5 ? seconds.toFixed(0) + " s" : (seconds / 60).toFixed(0) + " min");
  const words = (seconds) => (seconds.toFixed(0) === "0" ? "" : " · " + span(seconds));
  const number = (count) => count.toLocaleString("en");
  const sum = (counts) => Object.values(counts).reduce((all, count) => all + count, 0);

  // pieces of the page that the server makes; not more often than they can be read
  let asked = 0, waits = false;
  const ask = () => { waits = false; asked = Date.now(); htmx.trigger(by("findings"), "findings"); };
  const findings = () => {
    if (waits) return;
    waits = true;
    setTimeout(ask, Math.max(0, asked + 2000 - Date.now()));
  };
  // what is no piece of this page is not put into it
  document.addEventListener("htmx:before:swap", (event) => { if (event.detail.ctx.response.status !== 200) event.preventDefault(); });
  const about = () => htmx.ajax("GET", "/runs/" + run, { target: "#about", select: "#about", swap: "outerMorph" });
  const isOver = (state = by("about").dataset.state) => ["done", "stopped", "cut_off", "failed"].includes(state);
  // until the server has said so itself: it may be starting again
  const end = async () => {
    try { await about(); } catch { /* another time */ }
    if (!isOver()) { setTimeout(end, 1000); return; }
    ask();
    say("doing", by("about").dataset.state === "failed" ? "It could not be made." : "It has ended.");
    say("passing", "");
    say("heading", "As it was measured");
    by("progress").hidden = by("figures").hidden = by("outcomes").hidden = by("used").hidden = true;
  };
  by("live").hidden = !["running", "stopping"].includes(state);
  // the result is written a while after a trial has ended
  let trials = 0;
  setInterval(() => {
    const shown = document.querySelector("#findings [data-trials]")?.dataset.trials ?? 0;
    if (!isOver() && trials > shown) findings();
  }, 3000);
  const judge = (soFar) => {
    trials = soFar.counts.trials;
    by("f-verdict").className = "verdict " + (soFar.verdict ?? "");
    say("f-verdict", trials || soFar.counts.not_run ? soFar.said : "–");
  };
  // how many come before it changes without a word
  setInterval(() => { if (by("about").dataset.state === "waiting") about().catch(() => {}); }, 5000);

  // the place of a trial among the seconds; a fault may come before its first one
  const open = (number) => {
    if (number === trial) return;
    [trial, base] = [number, next];
    marks.push({ x: base, text: cell.length > 24 ? `${trial}` : `${trial} ${cell}` });
    all.forEach((lines) => lines.part(base - 0.5));
  };

  const on = {
    state(event) {
      ended = isOver(event.state);
      if (ended) {
        leave();
        end();
      } else if (event.state !== state) {
        about().catch(() => {});
      }
      state = event.state;
    },
    begun(event) {
      // whatever is told after it is told from the beginning
      [least, most, done, share, trial, base, next] = [event.least, event.most, 0, 0, 0, 0, 0];
      marks.length = 0;
      all.forEach((lines) => lines.clear());
      judge(event.so_far);
      progress();
    },
    note() { about().catch(() => {}); },
    doing(event) { say("passing", event.what + words(event.seconds)); },
    loading(event) { say("passing", `loaded ${number(event.rows)} of ${number(event.all)} rows` + words(event.seconds)); },
    trial(event) {
      say("doing", `Trial ${event.number} of ${least < most && event.number <= least ? least + " to " + most : most}: ${event.cell}`);
      share = 0;
      cell = event.cell;
      ["f-rate", "f-p50", "f-p99"].forEach((figure) => say(figure, "–"));
      ["outcomes", "used"].forEach((figure) => say(figure, ""));
    },
    second(event) {
      open(event.trial);
      say("passing", `${event.passed_seconds.toFixed(0)} s measured`);
      for (const second of event.seconds) {
        // what ended after the last whole second says nothing of a second
        if (second.second + 1 > event.passed_seconds + 0.3) continue;
        const x = base + second.second;
        next = Math.max(next, x + 1);
        const acknowledged = Object.fromEntries(Object.entries(second.ended).map(([operation, { ok }]) => [operation, ok || 0]));
        const ok = sum(acknowledged);
        const others = sum(Object.fromEntries(Object.entries(second.ended).map(([operation, outcomes]) => [operation, sum(outcomes)]))) - ok;
        rates.push(x, others ? { ...acknowledged, "not acknowledged": others } : acknowledged, 0);
        // a percentile needs ten times beyond it, as in reports
        const shown = { p50: ok >= 20 ? second.p50_ns : null, p99: ok >= 1000 ? second.p99_ns : null };
        times.push(x, shown);
        say("f-rate", rate(ok));
        say("f-p50", shown.p50 === null ? "–" : time(shown.p50));
        say("f-p99", shown.p99 === null ? "–" : time(shown.p99));
        say("outcomes", Object.entries(second.ended).map(([operation, outcomes]) =>
          operation + ": " + Object.entries(outcomes).map(([outcome, count]) => `${number(count)} ${outcome}`).join(", ")).join(" · "));
      }
      const x = base + Math.max(0, Math.round(event.passed_seconds) - 1);
      if (event.used.length) say("used", event.used.map((used) =>
        `${used.who} ${used.cores.toFixed(2)} cores` + (used.memory_bytes ? `, ${(used.memory_bytes / 2 ** 20).toFixed(0)} MiB` : "")).join(" · "));
      if (event.used.length) cores.push(x, Object.fromEntries(event.used.map((used) => [used.who, used.cores])));
      if (event.gauge) {
        by("c-gauge").querySelector("figcaption").textContent = event.gauge[0];
        level.push(x, { [event.gauge[0]]: event.gauge[1] });
      }
      share = event.share;
      progress();
      if (event.left_seconds) {
        const [from, to] = event.left_seconds.map(span);
        say("f-left", from === to ? to : `${from} to ${to}`);
      }
      draw();
    },
    fault(event) {
      const said = { begun: event.fault + " " + event.member, answers: event.member + " answers" }[event.stage];
      if (!said) return;
      open(event.trial);
      say("passing", said);
      // what comes after the measured part has no place among its seconds
      if (share >= 1) return;
      marks.push({ x: base + event.at_seconds, text: said, color: event.stage === "begun" ? 1 : 2 });
      all.forEach((lines) => (lines.stale = true));
      draw();
    },
    verdict(event) {
      done = event.trial;
      share = 0;
      // a trial that was shorter than a second has its place, too
      open(event.trial);
      next = Math.max(next, base + 1);
      progress();
      judge(event.so_far);
      say("passing", `${event.name}: ${event.said}, ${rate(event.per_second)} ok/s` + (event.p99_ns ? `, p99 ${time(event.p99_ns)}` : ""));
      findings();
    },
    not_run(event) { done += 1; share = 0; progress(); findings(); say("passing", `${event.cell}: ${event.why}`); },
  };

  // a page that nobody sees holds no connection: a browser has few for a server. Whoever comes back is told all again
  let events = null;
  const leave = () => { events?.close(); events = null; };
  const listen = () => {
    if (events || document.hidden) return;
    events = new EventSource(`/api/runs/${run}/events`);
    for (const [name, act] of Object.entries(on)) {
      events.addEventListener(name, (event) => {
        if (name !== "state") by("live").hidden = false;
        act(JSON.parse(event.data));
      });
    }
    events.addEventListener("error", () => {
      const isClosed = events?.readyState === EventSource.CLOSED;
      say("passing", isClosed ? "The server does not tell any more: load the page again." : "The server is not heard; trying again.");
    });
  };
  listen();
  document.addEventListener("visibilitychange", async () => {
    if (document.hidden) { leave(); return; }
    if (!ended) { listen(); draw(); return; }
    // another page may have let it go on
    try { await about(); } catch { return; }
    if (!isOver()) location.reload();
  });

  const again = () => { all.forEach((lines) => lines.again()); draw(); };
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; again(); } });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
})();
