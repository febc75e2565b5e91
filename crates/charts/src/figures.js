"use strict";
// figures as readers see them, and the colours of the page, for all charts
const figures = (() => {
  const digits = (value) => (value < 9.995 ? value.toFixed(2) : value < 99.95 ? value.toFixed(1) : value.toFixed(0));
  const time = (ns) => {
    if (ns == null) return "–";
    if (ns < 999.5) return ns.toFixed(0) + " ns";
    if (ns < 999.5e3) return digits(ns / 1e3) + " µs";
    return ns < 999.5e6 ? digits(ns / 1e6) + " ms" : digits(ns / 1e9) + " s";
  };
  const rate = (value) => (value == null ? "–" : value < 99.95 ? digits(value) : Math.round(value).toLocaleString("en"));
  const plain = (text) => text.replace(/\.0+ /, " ").replace(/(\.\d*?)0+ /, "$1 ").replace(/\.0+$/, "");
  // for an axis, where there is little room
  const short = (value) => (value < 999.5e3 ? plain(rate(value)) : plain(digits(value / 1e6) + " M"));
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const axis = () => ({
    stroke: css("--quiet"),
    grid: { stroke: css("--line"), width: 1 },
    ticks: { stroke: css("--line"), width: 1 },
    font: "12px system-ui, sans-serif",
  });
  // of a logarithmic axis only the powers of ten and, where they are few, twice and five times them
  const decades = (show) => (u, splits) => {
    const few = splits.length < 25;
    return splits.map((value) => {
      if (value == null) return null;
      const lead = value / 10 ** Math.floor(Math.log10(value) + 1e-9);
      return Math.abs(lead - 1) < 1e-6 || (few && (Math.abs(lead - 2) < 1e-6 || Math.abs(lead - 5) < 1e-6)) ? show(value) : null;
    });
  };
  // lines at the powers of ten alone
  const powers = (u, splits) => splits.map((value) => (Math.abs(Math.log10(value) - Math.round(Math.log10(value))) < 1e-6 ? value : null));
  const logarithmic = (show) => {
    const { grid, ticks } = axis();
    // all splits come to the filter, the labels are chosen by the values
    return { grid: { ...grid, filter: powers }, ticks: { ...ticks, filter: powers }, values: decades(show), filter: (u, splits) => splits };
  };
  // moments that are marked across all lines, each with its name
  const marks = (of) => (u) => {
    const { ctx } = u;
    ctx.save();
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.font = 11 * devicePixelRatio + "px system-ui, sans-serif";
    ctx.textAlign = "left";
    of().forEach((mark, place) => {
      const x = u.valToPos(mark.x, "x", true);
      if (x < u.bbox.left || x > u.bbox.left + u.bbox.width) return;
      ctx.strokeStyle = ctx.fillStyle = css(mark.color == null ? "--quiet" : "--c" + mark.color);
      ctx.beginPath();
      ctx.moveTo(x, u.bbox.top);
      ctx.lineTo(x, u.bbox.top + u.bbox.height);
      ctx.stroke();
      // those that are near each other are not written over each other
      ctx.fillText(mark.text, x + 3 * devicePixelRatio, u.bbox.top + (11 + (place % 3) * 12) * devicePixelRatio);
    });
    ctx.restore();
  };
  return { time, rate, short, plain, css, axis, logarithmic, marks };
})();
