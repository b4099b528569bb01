// Line charts over time on a canvas, with a time axis. A pause of the record is drawn as a gap, not as zero.
"use strict";

import { $, el } from "./page.js";
import { clock, span } from "./format.js";

const AXIS = 18;
// Distances of marks on the time axis, in seconds.
const STEPS = [10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600];

// What all charts share: the span, the newest time, and the place of the pointer.
export const view = { seconds: 180, end: Date.now(), hover: null };
const charts = [];
export function drawAll() { charts.forEach((chart) => chart.draw()); }

export class Chart {
  constructor(name, title, timeline, series, options) {
    Object.assign(this, { title, timeline, series, options });
    this.canvas = $("chart-" + name);
    this.legend = $("legend-" + name);
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "img");
    const move = (event) => {
      const box = this.canvas.getBoundingClientRect();
      view.hover = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
      drawAll();
    };
    const leave = () => { view.hover = null; drawAll(); };
    this.canvas.addEventListener("pointermove", move);
    this.canvas.addEventListener("pointerdown", move);
    this.canvas.addEventListener("pointerleave", leave);
    this.canvas.addEventListener("blur", leave);
    this.canvas.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -0.02, ArrowRight: 0.02 }[event.key];
      if (event.key === "Escape") leave();
      if (!step) return;
      event.preventDefault();
      view.hover = Math.min(1, Math.max(0, (view.hover ?? 1) + step));
      drawAll();
    });
    charts.push(this);
  }

  // A round number at or above `top`.
  ceiling(top) {
    const { options } = this;
    if (options.log) return 10 ** Math.ceil(Math.log10(Math.max(top, options.least) * 1.05));
    const base = options.binary ? 1024 ** Math.max(0, Math.floor(Math.log(Math.max(top, 1)) / Math.log(1024))) : 1;
    const scaled = Math.max(top, options.least || 1) * 1.08 / base;
    const size = 10 ** Math.floor(Math.log10(scaled));
    return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((step) => step * size >= scaled) * size * base;
  }

  draw() {
    const { canvas, series, options } = this;
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (!width) return;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const pen = canvas.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    this.color = (name) => style.getPropertyValue(name).trim();
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    const { points, gap } = this.timeline.since(view.end, view.seconds);
    const values = points.flatMap((point) => series.map((_, i) => point.values[i]).filter((v) => v !== null));
    const top = this.ceiling(values.length ? Math.max(...values) : 0);
    const low = options.log ? options.least : 0;
    const base = height - AXIS;
    const place = (v) => {
      const part = options.log ? Math.log(Math.max(v, low) / low) / Math.log(top / low) : v / top;
      return base - Math.min(1, Math.max(0, part)) * (base - 14);
    };
    const x = (t) => width - ((view.end - t) / (view.seconds * 1000)) * width;
    this.unknown(pen, base, points, x);
    this.values(pen, width, place, low, top);
    this.times(pen, width, base, x);
    pen.save();
    pen.beginPath();
    pen.rect(0, 0, width, height);
    pen.clip();
    series.forEach((one, at) => this.line(pen, one, at, points, gap, x, place, base));
    pen.restore();
    this.words(pen, points, gap, x, width, base);
  }

  values(pen, width, place, low, top) {
    const { options, color } = this;
    const marks = [];
    if (options.log) for (let v = low * 10; v <= top; v *= 10) marks.push(v);
    else marks.push(top / 2, top);
    const every = Math.ceil(marks.length / 4);
    pen.lineWidth = 1;
    pen.textAlign = "left";
    marks.forEach((v, at) => {
      if ((marks.length - 1 - at) % every) return;
      const y = Math.round(place(v)) + 0.5;
      pen.strokeStyle = color("--line");
      pen.beginPath();
      pen.moveTo(0, y);
      pen.lineTo(width, y);
      pen.stroke();
      pen.fillStyle = color("--faint");
      pen.fillText(options.format(v).replace(/\.0+(?= )/, ""), 0, y - 4);
    });
  }

  times(pen, width, base, x) {
    const { color } = this;
    pen.strokeStyle = color("--line");
    pen.beginPath();
    pen.moveTo(0, Math.round(base) + 0.5);
    pen.lineTo(width, Math.round(base) + 0.5);
    pen.stroke();
    const room = width / 74;
    const step = STEPS.find((s) => view.seconds / s <= room) || STEPS[STEPS.length - 1];
    const zone = new Date(view.end).getTimezoneOffset() * 60000;
    const first = Math.ceil((view.end - view.seconds * 1000 - zone) / (step * 1000)) * step * 1000 + zone;
    pen.textAlign = "center";
    pen.fillStyle = color("--faint");
    for (let t = first; t <= view.end; t += step * 1000) {
      const at = x(t);
      pen.beginPath();
      pen.moveTo(Math.round(at) + 0.5, base);
      pen.lineTo(Math.round(at) + 0.5, base + 4);
      pen.stroke();
      if (at > 24 && at < width - 24) pen.fillText(clock(t, step < 60), at, base + 15);
    }
  }

  // Says where the record begins, so that an empty part does not look like an outage.
  unknown(pen, base, points, x) {
    const { color, series } = this;
    const first = points.find((point) => series.some((_, at) => point.values[at] !== null));
    const end = first ? x(first.t) : x(view.end);
    if (end < 4) return;
    pen.fillStyle = color("--hover");
    pen.globalAlpha = 0.55;
    pen.fillRect(0, 14, end, base - 14);
    pen.globalAlpha = 1;
    if (end < 120) return;
    pen.fillStyle = color("--faint");
    pen.textAlign = "center";
    pen.fillText(first ? `no record before ${clock(first.t)}` : "no record yet", end / 2, base - 10);
  }

  line(pen, one, at, points, gap, x, place, base) {
    pen.strokeStyle = this.color(one.color);
    pen.lineWidth = 1.75;
    pen.lineJoin = "round";
    pen.setLineDash(one.dash || []);
    let run = [];
    const finish = () => {
      if (!run.length) return;
      pen.beginPath();
      run.forEach(([px, py], i) => (i ? pen.lineTo(px, py) : pen.moveTo(px, py)));
      if (run.length === 1) pen.lineTo(run[0][0] + 1, run[0][1]);
      pen.stroke();
      if (one.area) {
        pen.lineTo(run[run.length - 1][0], base);
        pen.lineTo(run[0][0], base);
        pen.closePath();
        const wash = pen.createLinearGradient(0, 0, 0, base);
        wash.addColorStop(0, this.color(one.color) + "38");
        wash.addColorStop(1, this.color(one.color) + "05");
        pen.fillStyle = wash;
        pen.fill();
      }
      run = [];
    };
    let last = null;
    for (const point of points) {
      const v = point.values[at];
      if (v === null || (last !== null && point.t - last > gap)) finish();
      if (v !== null) run.push([x(point.t), place(v)]);
      last = point.t;
    }
    finish();
    pen.setLineDash([]);
  }

  // The legend: the newest values, or those under the pointer.
  words(pen, points, gap, x, width, base) {
    const { series, options, color } = this;
    let point = points[points.length - 1] || null;
    let when = null;
    if (view.hover !== null && points.length) {
      const t = view.end - (1 - view.hover) * view.seconds * 1000;
      const near = points.reduce((best, one) => (Math.abs(one.t - t) < Math.abs(best.t - t) ? one : best));
      point = Math.abs(near.t - t) <= Math.max(gap, view.seconds * 10) ? near : null;
      when = point ? `${clock(point.t)}, ${span((view.end - point.t) / 1000)} ago` : "no record";
      const at = point ? x(point.t) : view.hover * width;
      pen.strokeStyle = color("--faint");
      pen.lineWidth = 1;
      pen.setLineDash([3, 3]);
      pen.beginPath();
      pen.moveTo(at, 8);
      pen.lineTo(at, base);
      pen.stroke();
      pen.setLineDash([]);
    }
    const texts = series.map((one, at) => [one, options.format(point ? point.values[at] : null)]);
    this.legend.replaceChildren(...(when ? [el("span", {}, when)] : []), ...texts.map(([one, text]) => {
      const mark = el("i");
      mark.style.background = `var(${one.color})`;
      return el("span", {}, mark, one.name + " ", el("b", {}, text));
    }));
    const said = `${this.title}, last ${span(view.seconds)}: ` + texts.map(([one, text]) => `${one.name} ${text}`).join(", ");
    this.canvas.setAttribute("aria-label", when ? `${said} (${when})` : said);
  }
}
