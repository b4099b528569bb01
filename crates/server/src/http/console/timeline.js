// What the page remembers of the last 24 hours: each second for 15 minutes, each 10 s for 6 hours, each minute for a day.
"use strict";

const TIERS = [[1, 900], [10, 2160], [60, 1440]];

export class Timeline {
  // `joins` says for each value how points are combined: "mean" or "max".
  constructor(joins) {
    this.joins = joins;
    this.tiers = TIERS.map(([seconds, most]) => ({ seconds, most, points: [], open: null }));
  }

  get newest() {
    const { points } = this.tiers[0];
    return points.length ? points[points.length - 1].t : 0;
  }

  // Adds the values at `t`, Unix milliseconds. Points must come in order.
  add(t, values) {
    if (t <= this.newest) return;
    for (const tier of this.tiers) this.addTo(tier, t, values);
  }

  addTo(tier, t, values) {
    const slot = Math.floor(t / 1000 / tier.seconds);
    if (tier.seconds === 1 || !tier.open || tier.open.slot !== slot) {
      tier.open = { slot, t, n: values.map((v) => (v === null ? 0 : 1)), values: [...values] };
      tier.points.push(tier.open);
      if (tier.points.length > tier.most) tier.points.shift();
      return;
    }
    const { open } = tier;
    open.t = t;
    values.forEach((v, at) => {
      if (v === null) return;
      const old = open.values[at];
      if (old === null) open.values[at] = v;
      else open.values[at] = this.joins[at] === "max" ? Math.max(old, v) : (old * open.n[at] + v) / (open.n[at] + 1);
      open.n[at]++;
    });
  }

  // Adds points of another record with a distance of `seconds`, as far as they are newer.
  merge(seconds, points) {
    const tier = this.tiers.find((one) => one.seconds === seconds);
    if (!tier) return;
    const newest = tier.points.length ? tier.points[tier.points.length - 1].t : 0;
    const from = newest + seconds * 500;
    tier.points.push(...points.filter(({ t }) => t > from));
    tier.points.splice(0, Math.max(0, tier.points.length - tier.most));
    tier.open = null;
  }

  // The points of the last `seconds` before `end`, and the longest distance of two neighbours.
  since(end, seconds) {
    const tier = this.tiers.find(({ seconds: each, most }) => each * most >= seconds) || this.tiers[this.tiers.length - 1];
    const start = end - seconds * 1000;
    return { points: tier.points.filter(({ t }) => t >= start - tier.seconds * 1000), gap: tier.seconds * 3500 };
  }
}
