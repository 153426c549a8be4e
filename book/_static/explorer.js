/* The joint gradient flow in the page: three trajectories for any number of segments and classes.

The flow starts at mu = nu = 0. The margin mu never falls, so it serves as the variable of integration: the phase curve
gives nu at each mu, and time is the integral of 1/mu' along it. Equation numbers are those of the page
"Derivations". Everything is kept as logarithms or differences that stay exact up to m = C = 1e6, t = 1e12.
*/
"use strict";

const fcamExplorer = (() => {
  const PARADIGMS = [
    { name: "soft", label: "SA" },
    { name: "hard", label: "HA" },
    { name: "lvml", label: "LVML" },
  ];
  const LIMITS = { m: [2, 1e6], C: [2, 1e6], T: [1, 1e12] };
  const STEP = 0.01; // largest step in mu
  const GROWTH = 1.02; // and largest relative step, for the start
  const MAX_STEPS = 50000;

  /* ---------- the flow ---------- */

  /* Wright omega for real z: the solution of w + log w = z, by Newton's method on the logarithm of w. */
  function wrightOmega(z) {
    let logW = z > 1 ? Math.log(z) : z;
    for (let i = 0; i < 50; i += 1) {
      const w = Math.exp(logW);
      const step = (w + logW - z) / (w + 1);
      logW -= step;
      if (Math.abs(step) <= 1e-15 * Math.max(1, Math.abs(logW))) break;
    }
    return Math.exp(logW);
  }

  /* nu of the phase curve's right-hand side R: (e^nu - 1)/(m - 1) + nu = R. */
  function focusLogit(R, m) {
    const K = R + 1 / (m - 1);
    const w = wrightOmega(K - Math.log(m - 1));
    // The same number twice; each form loses no digits where it is used.
    return w < 1 ? Math.max(0, K - w) : Math.log(w) + Math.log(m - 1);
  }

  const attention = (nu, m) => 1 / (1 + (m - 1) * Math.exp(-nu));

  /* beta, C beta - 1 and log(e^mu + C - 1). */
  function classifier(mu, C) {
    const logF = mu + Math.log1p((C - 1) * Math.exp(-mu));
    return { beta: Math.exp(mu - logF), gain: (C - 1) * -Math.expm1(-mu) * Math.exp(mu - logF), logF };
  }

  /* dR/dmu and log(dt/dmu) at mu, where R is the phase curve's right-hand side. */
  function slopes(paradigm, mu, R, C, m) {
    const alpha = attention(focusLogit(R, m), m);
    const { beta, gain, logF } = classifier(mu, C);
    if (paradigm === "soft") {
      const logG = alpha * mu + Math.log1p((C - 1) * Math.exp(-alpha * mu));
      return { dR: ((C - 1) * mu) / C, logDt: logG - Math.log(alpha) };
    }
    const F = Math.exp(logF);
    if (paradigm === "hard") return { dR: (F * Math.log1p(gain)) / C, logDt: logF - Math.log(alpha) };
    const Z = alpha * beta + (1 - alpha) / C;
    return { dR: (F * gain) / (C * C * beta), logDt: logF - Math.log((alpha * beta) / Z) };
  }

  function loss(paradigm, mu, nu, m, C) {
    const wrong = (margin) => (C - 1) * Math.exp(-margin); // probability of wrong over right
    const [alpha, rest] = [attention(nu, m), 1 / (1 + Math.exp(nu) / (m - 1))];
    if (paradigm === "soft") return Math.log1p(wrong(alpha * mu));
    if (paradigm === "hard") return alpha * Math.log1p(wrong(mu)) + rest * Math.log(C);
    return -Math.log1p(-(alpha * wrong(mu)) / (1 + wrong(mu)) - rest * (1 - 1 / C)); // -log Z by 1 - Z
  }

  /* Knots (t, mu, R) of the flow from 0 to the first knot at or after `horizon`, by Runge and Kutta's fourth order. */
  function integrate(paradigm, m, C, first, horizon) {
    let mu = 0;
    let R = 0;
    let t = 0;
    const knots = [];
    const note = () => {
      const { dR, logDt } = slopes(paradigm, mu, R, C, m);
      knots.push({ t, mu, R, muDot: Math.exp(-logDt), RDot: dR * Math.exp(-logDt) });
    };
    note();
    let step = Math.min(STEP, first * knots[0].muDot);
    for (let i = 0; i < MAX_STEPS && t < horizon; i += 1) {
      const a = slopes(paradigm, mu, R, C, m);
      const b = slopes(paradigm, mu + step / 2, R + (step / 2) * a.dR, C, m);
      const c = slopes(paradigm, mu + step / 2, R + (step / 2) * b.dR, C, m);
      const d = slopes(paradigm, mu + step, R + step * c.dR, C, m);
      R += (step / 6) * (a.dR + 2 * b.dR + 2 * c.dR + d.dR);
      t += (step / 6) * (Math.exp(a.logDt) + 2 * Math.exp(b.logDt) + 2 * Math.exp(c.logDt) + Math.exp(d.logDt));
      mu += step;
      note();
      step = Math.min(STEP, mu * (GROWTH - 1) + first * knots[0].muDot);
    }
    return knots;
  }

  /* Cubic through two knots with the slopes there. */
  function between(t, a, b, value, slope) {
    const h = b.t - a.t;
    const s = (t - a.t) / h;
    const [u, v] = [a[value], b[value]];
    return (
      (1 + 2 * s) * (1 - s) ** 2 * u + s * (1 - s) ** 2 * h * a[slope] +
      s * s * (3 - 2 * s) * v + s * s * (s - 1) * h * b[slope]
    );
  }

  /* mu, nu, alpha, loss of one paradigm at rising times >= 0. */
  function trajectory(paradigm, m, C, times) {
    const last = times[times.length - 1];
    const first = Math.min(times.find((t) => t > 0) || 1, last || 1);
    const knots = integrate(paradigm, m, C, first / 4, last);
    const found = { times, mu: [], nu: [], alpha: [], loss: [] };
    let i = 1;
    for (const t of times) {
      while (i < knots.length - 1 && knots[i].t < t) i += 1;
      const mu = between(t, knots[i - 1], knots[i], "mu", "muDot");
      const nu = focusLogit(between(t, knots[i - 1], knots[i], "R", "RDot"), m);
      found.mu.push(mu);
      found.nu.push(nu);
      found.alpha.push(attention(nu, m));
      found.loss.push(loss(paradigm, mu, nu, m, C));
    }
    return found;
  }

  /* ---------- the figure ---------- */

  const SVG = "http://www.w3.org/2000/svg";
  const BOX = { width: 360, height: 250, left: 44, right: 10, top: 12, bottom: 40 };
  const POINTS = 241;
  const EARLIEST = 1e-4; // the logarithmic axis begins at this share of T
  const PANELS = [
    { key: "mu", x: "t", y: "mu" },
    { key: "nu", x: "t", y: "nu" },
    { key: "alpha", x: "t", y: "alpha" },
    { key: "phase", x: "mu", y: "nu" },
  ];
  const number = new Intl.NumberFormat("en", { maximumSignificantDigits: 4, useGrouping: true });
  const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3, notation: "compact" });
  const shown = (v) =>
    v !== 0 && (Math.abs(v) >= 1e7 || Math.abs(v) < 1e-3) ? v.toExponential(2).replace("e+", "e") : number.format(v);

  function element(name, attributes, parent) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    parent.append(made);
    return made;
  }

  /* Round numbers from 0 to at least `high`, four or five of them. */
  function ticks(high) {
    const raw = high / 4;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map((f) => f * power).find((s) => s >= raw);
    return Array.from({ length: Math.floor(high / step + 1e-9) + 1 }, (_, i) => i * step);
  }

  function decades(low, high) {
    const every = Math.ceil((high - low) / 5);
    const all = [];
    for (let e = Math.ceil(low); e <= high + 1e-9; e += every) all.push(e);
    return all;
  }

  function drawPanel(panel, svg, state) {
    svg.replaceChildren();
    const { left, right, top, bottom, width, height } = BOX;
    const byTime = panel.x === "t";
    const highest = (key) => Math.max(...PARADIGMS.map(({ name }) => Math.max(...state.curves[name][key]))) * 1.04;
    const yTop = panel.y === "alpha" ? 1 : highest(panel.y) || 1;
    const byPower = byTime && state.log;
    const xLow = byPower ? Math.log10(state.times[0]) : 0;
    const xHigh = byPower ? Math.log10(state.T) : byTime ? state.T : highest("mu") || 1;
    panel.toX = (v) => left + (((byPower ? Math.log10(v) : v) - xLow) / (xHigh - xLow)) * (width - left - right);
    panel.toY = (v) => height - bottom - (v / yTop) * (height - top - bottom);
    for (const value of ticks(yTop)) {
      const y = panel.toY(value);
      element("line", { x1: left, x2: width - right, y1: y, y2: y, class: "grid" }, svg);
      element("text", { x: left - 6, y: y + 4, "text-anchor": "end" }, svg).textContent = number.format(value);
    }
    for (const value of byPower ? decades(xLow, xHigh) : ticks(xHigh)) {
      const x = panel.toX(byPower ? 10 ** value : value);
      element("line", { x1: x, x2: x, y1: height - bottom, y2: height - bottom + 4, class: "axis" }, svg);
      const label = element("text", { x, y: height - bottom + 17, "text-anchor": "middle" }, svg);
      label.textContent = byPower ? "10" : short.format(value);
      if (byPower) element("tspan", { dy: -5, class: "power" }, label).textContent = String(value).replace("-", "\u2212");
    }
    element("line", { x1: left, x2: width - right, y1: height - bottom, y2: height - bottom, class: "axis" }, svg);
    const middle = (left + width - right) / 2;
    const name = element("text", { x: middle, y: height - 5, "text-anchor": "middle" }, svg);
    name.textContent = byTime ? "time t" : "margin \u03bc";
    for (const { name: paradigm } of PARADIGMS) {
      const xs = byTime ? state.times : state.curves[paradigm].mu;
      const ys = state.curves[paradigm][panel.y];
      const points = xs.map((x, i) => `${panel.toX(x).toFixed(1)},${panel.toY(ys[i]).toFixed(1)}`).join(" ");
      element("polyline", { points, class: `curve ${paradigm}` }, svg);
    }
    panel.marks = element("g", { class: "marks" }, svg);
  }

  function markPanel(panel, state) {
    const i = state.index;
    panel.marks.replaceChildren();
    if (panel.x === "t") {
      const x = panel.toX(state.times[i]);
      element("line", { x1: x, x2: x, y1: BOX.top, y2: BOX.height - BOX.bottom, class: "cursor" }, panel.marks);
    }
    for (const { name } of PARADIGMS) {
      const curve = state.curves[name];
      const cx = panel.toX(panel.x === "t" ? state.times[i] : curve.mu[i]);
      element("circle", { cx, cy: panel.toY(curve[panel.y][i]), r: 4, class: `dot ${name}` }, panel.marks);
    }
  }

  /* ---------- the controls ---------- */

  function start(root) {
    const part = (key) => root.querySelector(`[data-part="${key}"]`);
    const state = { m: 20, C: 20, T: 1000, log: false, index: POINTS - 1, curves: {}, times: [] };
    const panels = PANELS.map((panel) => ({ ...panel, svg: part(panel.key) }));
    const said = part("said");

    function readout() {
      part("time").textContent = shown(state.times[state.index]);
      part("at").setAttribute("aria-valuetext", `t = ${shown(state.times[state.index])}`);
      for (const { name } of PARADIGMS) {
        for (const key of ["mu", "nu", "alpha", "loss"]) {
          part(`${key}-${name}`).textContent = shown(state.curves[name][key][state.index]);
        }
      }
      for (const panel of panels) markPanel(panel, state);
    }

    function compute() {
      const share = (i) => (state.log ? EARLIEST ** (1 - i / (POINTS - 1)) : i / (POINTS - 1));
      state.times = Array.from({ length: POINTS }, (_, i) => state.T * share(i));
      for (const { name } of PARADIGMS) state.curves[name] = trajectory(name, state.m, state.C, state.times);
      for (const panel of panels) drawPanel(panel, panel.svg, state);
      readout();
    }

    /* A slider over the logarithm and a number field for the same value; returns what shows the value in both. */
    function connect(key) {
      const [low, high] = LIMITS[key];
      const [slider, field] = [part(`${key}-slider`), part(`${key}-field`)];
      const place = () => {
        slider.value = Math.log10(state[key]);
        slider.setAttribute("aria-valuetext", shown(state[key]));
      };
      const show = () => {
        place();
        field.value = state[key];
      };
      slider.addEventListener("input", () => {
        const value = 10 ** Number(slider.value);
        const digits = 10 ** Math.max(0, Math.floor(Math.log10(value)) - 1);
        state[key] = Math.min(high, Math.max(low, Math.round(value / digits) * digits));
        show();
        settle(field, "");
      });
      field.addEventListener("input", () => {
        const value = Number(field.value);
        const whole = key === "T" || Number.isInteger(value);
        if (field.value === "" || !(value >= low && value <= high) || !whole) {
          const kind = key === "T" ? "a number" : "a whole number";
          settle(field, `${key} is "${field.value}": give ${kind} from ${low} to ${number.format(high)}.`);
          return;
        }
        state[key] = value;
        place();
        settle(field, "");
      });
      show();
      return show;
    }

    /* After an entry: say what is wrong with it, or draw anew. */
    function settle(field, problem) {
      field.setAttribute("aria-invalid", problem ? "true" : "false");
      said.textContent = problem;
      if (!problem) compute();
    }

    const shows = { m: connect("m"), C: connect("C"), T: connect("T") };
    for (const button of root.querySelectorAll("button[data-m]")) {
      button.addEventListener("click", () => {
        for (const [key, show] of Object.entries(shows)) {
          state[key] = Number(button.dataset[key.toLowerCase()]);
          part(`${key}-field`).setAttribute("aria-invalid", "false");
          show();
        }
        settle(part("m-field"), "");
      });
    }
    part("at").addEventListener("input", (event) => {
      state.index = Number(event.target.value);
      readout();
    });
    for (const panel of panels) {
      panel.svg.addEventListener("pointermove", (event) => {
        const bounds = panel.svg.getBoundingClientRect();
        const x = ((event.clientX - bounds.left) / bounds.width) * BOX.width;
        const y = ((event.clientY - bounds.top) / bounds.height) * BOX.height;
        state.index = nearest(panel, x, y);
        part("at").value = state.index;
        readout();
      });
    }

    part("log").addEventListener("change", (event) => {
      state.log = event.target.checked;
      compute();
    });

    /* The point under the pointer: by time, or in the phase portrait by distance to any curve. */
    function nearest(panel, x, y) {
      const share = (x - BOX.left) / (BOX.width - BOX.left - BOX.right);
      if (panel.x === "t") return Math.round(Math.min(1, Math.max(0, share)) * (POINTS - 1));
      let best = [Infinity, 0];
      for (const { name } of PARADIGMS) {
        state.curves[name].mu.forEach((mu, i) => {
          const far = Math.hypot(panel.toX(mu) - x, panel.toY(state.curves[name].nu[i]) - y);
          if (far < best[0]) best = [far, i];
        });
      }
      return best[1];
    }

    compute();
  }

  document.addEventListener("DOMContentLoaded", () => document.querySelectorAll(".fcam-explorer").forEach(start));
  return { trajectory, focusLogit, wrightOmega, start };
})();
window.fcamExplorer = fcamExplorer;
