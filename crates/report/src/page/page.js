"use strict";
(() => {
  const charts = new Map(JSON.parse(document.getElementById("charts").textContent).map((chart) => [chart.id, chart]));
  const drawn = new Map();
  const { time, rate, short, plain, css, axis: axisOf, logarithmic: onLogarithms, marks } = figures;

  // 1 / (1 - p) as a percentile
  const percentile = (x) => {
    if (x == null) return "–";
    const nines = Math.max(0, Math.ceil(Math.log10(x) - 1e-9) - 1);
    return parseFloat((100 * (1 - 1 / x)).toFixed(Math.max(nines, x < 10 ? 0 : 1))) + " %";
  };
  // the intervals of points, as whiskers
  const whiskers = (lines) => (u) => {
    const { ctx } = u;
    ctx.save();
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([]);
    const most = Math.max(...lines.map((line) => line.color));
    lines.forEach((line, at) => {
      if (!line.low || !u.series[at + 1].show) return;
      ctx.strokeStyle = css("--c" + line.color);
      line.x.forEach((n, i) => {
        if (line.low[i] == null) return;
        // a little apart, as those of one number of clients would hide each other
        const x = u.valToPos(n, "x", true) + (line.color - most / 2) * 3 * devicePixelRatio;
        const clamp = (value) => Math.max(u.bbox.top, Math.min(u.bbox.top + u.bbox.height, u.valToPos(value, "y", true)));
        const [low, high] = [clamp(line.low[i]), clamp(line.high[i])];
        const arm = 3 * devicePixelRatio;
        ctx.beginPath();
        ctx.moveTo(x, low);
        ctx.lineTo(x, high);
        ctx.moveTo(x - arm, low);
        ctx.lineTo(x + arm, low);
        ctx.moveTo(x - arm, high);
        ctx.lineTo(x + arm, high);
        ctx.stroke();
      });
    });
    ctx.restore();
  };

  const draw = (place) => {
    const chart = charts.get(place.id);
    if (!chart || !place.clientWidth) return;
    drawn.get(place.id)?.destroy();
    const searched = chart.kind === "capacity";
    const times = searched || chart.kind === "percentiles" || chart.kind === "times";
    const show = times ? time : rate;
    const logarithmic = chart.kind === "percentiles";
    const axis = axisOf();
    const label = { sweep: "clients", percentiles: "percentile", capacity: "offered/s", rate: "second", times: "second" }[chart.kind];
    const x = { ...axis, space: 44, size: 34, incrs: logarithmic || searched ? undefined : [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000] };
    const y = { ...axis, size: 66, values: (u, splits) => splits.map((value) => (value == null ? null : times ? plain(time(value)) : short(value))) };
    if (logarithmic) Object.assign(x, onLogarithms(percentile));
    if (times) Object.assign(y, onLogarithms((value) => plain(time(value))));
    const highest = Math.max(...chart.lines.flatMap((line) => line.y.concat((line.high || []).filter((high) => high != null).map((high) => Math.min(high, 2 * Math.max(...line.y))))));
    const options = {
      width: place.clientWidth,
      height: 290,
      padding: [12, logarithmic ? 34 : 14, 0, 0],
      scales: {
        x: { time: false, distr: logarithmic ? 3 : 1, ...(logarithmic ? {} : { range: (u, low, high) => (low === high ? [low - 1, high + 1] : [low - (high - low) * 0.02, high + (high - low) * 0.02]) }) },
        y: times ? { distr: 3 } : { range: [0, highest * 1.08 || 1] },
      },
      axes: [x, y],
      series: [
        { label, value: (u, value) => (value == null ? "–" : logarithmic ? percentile(value) : String(value)) },
        ...chart.lines.map((line) => ({
          label: line.label,
          stroke: css("--c" + line.color),
          width: line.dashed ? 1 : 1.6,
          dash: line.dashed ? [5, 4] : undefined,
          spanGaps: true,
          paths: chart.kind === "sweep" && !line.dashed ? () => null : undefined,
          points: { show: searched || (chart.kind === "sweep" ? !line.dashed : line.x.length < 3), size: 6, fill: css("--c" + line.color) },
          value: (u, value) => show(value),
        })),
      ],
      hooks: { draw: [whiskers(chart.lines), marks(() => chart.marks || [])] },
      legend: { live: matchMedia("(hover: hover)").matches },
      cursor: { drag: { x: true, y: false } },
    };
    const data = uPlot.join(chart.lines.map((line) => [line.x, times ? line.y.map((ns) => (ns > 0 ? ns : null)) : line.y]));
    place.textContent = "";
    drawn.set(place.id, new uPlot(options, data, place));
  };

  const places = [...document.querySelectorAll(".chart")];
  const seen = new IntersectionObserver(
    (entries) => entries.forEach((entry) => {
      if (entry.isIntersecting && !drawn.has(entry.target.id)) draw(entry.target);
    }),
    { rootMargin: "400px" },
  );
  // the first ones at once, all others when they come near
  places.slice(0, 12).forEach(draw);
  places.forEach((place) => seen.observe(place));

  const again = () => places.filter((place) => drawn.has(place.id)).forEach(draw);
  let width = innerWidth, waiting;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(again, 150);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);

  // on paper: light, and every chart that is not folded away
  addEventListener("beforeprint", () => {
    document.documentElement.classList.add("printing");
    places.forEach(draw);
    document.querySelectorAll(".uplot, .uplot canvas, .u-wrap").forEach((part) => (part.style.maxWidth = "100%"));
  });
  addEventListener("afterprint", () => {
    document.documentElement.classList.remove("printing");
    again();
  });

  document.querySelectorAll(".filter").forEach((input) => {
    const rows = [...input.nextElementSibling.querySelectorAll("tbody tr")];
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
      }
    });
  });
})();
