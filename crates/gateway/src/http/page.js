'use strict';
(() => {
  const shown = 180;
  const seconds = [];
  const by = (id) => document.getElementById(id);
  const count = (value) => (value < 10 && value > 0 ? value.toFixed(1) : Math.round(value).toLocaleString('en'));
  const percent = (share) => `${Math.min(100, Math.round(share * 100))} %`;
  const bytes = (value) => (value >= 2 ** 30 ? `${(value / 2 ** 30).toFixed(1)} GiB` : `${Math.round(value / 2 ** 20)} MiB`);
  const time = (millis) => {
    if (millis === 0) return '–';
    if (millis < 1) return `${Math.round(millis * 1000)} µs`;
    return millis < 1000 ? `${millis.toFixed(1)} ms` : `${(millis / 1000).toFixed(1)} s`;
  };
  const words = {
    received: (s) => `${count(s.received)}/s`,
    acknowledged: (s) => `${count(s.acknowledged)}/s`,
    stored: (s) => `${count(s.stored)}/s`,
    refused: (s) => `${count(s.refused)}/s`,
    waiting: (s) => (s.messages === null ? count(s.waiting) : `${count(s.messages)} messages`),
    oldest: (s) => (s.waiting ? `${s.oldest.toFixed(1)} s` : '–'),
    sync_entries: (s) => count(s.sync_entries),
    batch_entries: (s) => count(s.batch_entries),
    bytes: (s) => (s.most_bytes ? `${s.bytes === null ? '?' : bytes(s.bytes)} of ${bytes(s.most_bytes)}` : s.bytes ? bytes(s.bytes) : '–'),
    connections: (s) => s.connections.toLocaleString('en'),
    threads_busy: (s) => percent(s.threads_busy),
  };

  const clock = (seconds) => new Date(seconds * 1000).toTimeString().slice(0, 8);
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const chart = (id, lines) => {
    const place = by(id);
    const axis = { stroke: () => css('--ink'), grid: { stroke: () => css('--line'), width: 1 }, ticks: { stroke: () => css('--line') } };
    const options = {
      width: place.clientWidth,
      height: 220,
      scales: { y: { range: (_, low, high) => [0, Math.max(1, high || 0) * 1.05] } },
      axes: [{ ...axis, space: 90, values: (_, ticks) => ticks.map(clock) }, { ...axis, size: 62, values: (_, ticks) => ticks.map((tick) => tick.toLocaleString('en')) }],
      series: [{ label: 'time', value: (_, value) => (value == null ? '–' : clock(value)) }, ...lines.map((line, at) => ({
        label: line.replace('_', ' '),
        stroke: () => css(`--c${at}`),
        width: 2,
        dash: [[], [6, 3], [2, 3]][at],
        value: (_, value) => (value == null ? '–' : count(value)),
      }))],
    };
    const plot = new uPlot(options, [[], ...lines.map(() => [])], place);
    new ResizeObserver(() => plot.setSize({ width: place.clientWidth, height: 220 })).observe(place);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => plot.redraw());
    return () => plot.setData([seconds.map((s) => s.at / 1000), ...lines.map((line) => seconds.map((s) => value(s, line)))]);
  };
  // with a broker messages wait, and how old those are that nobody here holds is not known
  const value = (s, line) => {
    if (s.messages === null) return s[line];
    if (line === 'oldest' && s.messages > 0 && s.waiting === 0) return null;
    return line === 'waiting' ? s.messages : s[line];
  };
  const draw = [
    chart('rates', ['received', 'acknowledged', 'stored']),
    chart('depth', ['waiting']),
    chart('age', ['oldest']),
  ];

  const show = () => {
    const last = seconds[seconds.length - 1];
    if (!last) return;
    by('waits').textContent = last.messages === null ? 'Entries that wait' : 'Messages that wait in the broker';
    const limit = last.limit.replaceAll(' %', '\u00a0%');
    if (by('limit').textContent !== limit) by('limit').textContent = limit;
    for (const [id, word] of Object.entries(words)) by(id).textContent = word(last);
    last.stages.forEach((stage, at) => {
      const cells = by('stages').rows[at].cells;
      cells[1].textContent = count(stage.rate);
      cells[2].textContent = time(stage.millis);
      cells[3].textContent = stage.busy === null ? '' : percent(stage.busy);
    });
    draw.forEach((again) => again());
  };

  const events = new EventSource('/events');
  events.onmessage = (event) => {
    const said = JSON.parse(event.data);
    if (Array.isArray(said)) seconds.splice(0, seconds.length, ...said);
    else if (said) seconds.push(said);
    if (seconds.length > shown) seconds.splice(0, seconds.length - shown);
    by('state').textContent = 'Live, each second.';
    by('state').className = '';
    show();
  };
  events.onerror = () => {
    by('state').textContent = `The ${document.title.replace('acidtest ', '')} does not answer. What is shown is old.`;
    by('state').className = 'away';
  };
})();
