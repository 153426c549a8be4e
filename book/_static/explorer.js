/* The joint gradient flow in the page: SA, HA, LVML and the hybrid for any number of segments and classes.

The flow starts at mu = nu = 0. The margin mu never falls, so it serves as the variable of integration: the phase curve
gives nu at each mu, and time is the integral of 1/mu' along it. The hybrid is SA's flow until the switch and HA's from
where SA stands: its right-hand side R goes on from SA's (G20). Equation numbers are those of the page "Derivations".
Everything is kept as logarithms or differences that stay exact up to m = C = 1e6, t = 1e12.
*/
"use strict";

const fcamExplorer = (() => {
  const PARADIGMS = [
    { name: "soft", label: "SA" },
    { name: "hard", label: "HA" },
    { name: "lvml", label: "LVML" },
    { name: "hybrid", label: "hybrid" },
  ];
  const SETTINGS = ["m", "C", "T", "s"];
  const STEP = 0.01; // largest step in mu
  const GROWTH = 1.02; // and largest relative step, for the start
  const MAX_STEPS = 50000;
  const CURVE_POINTS = 800; // of a phase curve

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

  /* Knots of the flow from the point `from` to the first at or after `horizon`, by Runge and Kutta's fourth order. */
  function integrate(paradigm, m, C, first, horizon, from) {
    let { mu, R, t } = from;
    const knots = [];
    const note = () => {
      const { dR, logDt } = slopes(paradigm, mu, R, C, m);
      knots.push({ t, mu, R, muDot: Math.exp(-logDt), RDot: dR * Math.exp(-logDt) });
    };
    note();
    let step = Math.min(STEP, first * knots[0].muDot);
    for (let i = 0; i < MAX_STEPS && (t < horizon || i === 0); i += 1) {
      const a = slopes(paradigm, mu, R, C, m);
      const b = slopes(paradigm, mu + step / 2, R + (step / 2) * a.dR, C, m);
      const c = slopes(paradigm, mu + step / 2, R + (step / 2) * b.dR, C, m);
      const d = slopes(paradigm, mu + step, R + step * c.dR, C, m);
      R += (step / 6) * (a.dR + 2 * b.dR + 2 * c.dR + d.dR);
      t += (step / 6) * (Math.exp(a.logDt) + 2 * Math.exp(b.logDt) + 2 * Math.exp(c.logDt) + Math.exp(d.logDt));
      mu += step;
      note();
      step = Math.min(STEP, (mu - from.mu) * (GROWTH - 1) + first * knots[0].muDot);
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

  /* One loss's flow from the point `from` at rising times: mu, nu, alpha, loss, its phase curve and its last point. */
  function flow(paradigm, m, C, times, from = { t: 0, mu: 0, R: 0 }) {
    const last = times[times.length - 1];
    const first = Math.min((times.find((t) => t > from.t) ?? from.t + 1) - from.t, last - from.t || 1);
    const knots = integrate(paradigm, m, C, first / 4, last, from);
    const found = { mu: [], nu: [], alpha: [], loss: [], end: from };
    let i = 1;
    for (const t of times) {
      while (i < knots.length - 1 && knots[i].t < t) i += 1;
      const mu = between(t, knots[i - 1], knots[i], "mu", "muDot");
      const R = between(t, knots[i - 1], knots[i], "R", "RDot");
      const nu = focusLogit(R, m);
      found.mu.push(mu);
      found.nu.push(nu);
      found.alpha.push(attention(nu, m));
      found.loss.push(loss(paradigm, mu, nu, m, C));
      found.end = { t, mu, R };
    }
    // Drawn over mu and not over time: a jump within one step of time would have corners.
    const along = knots.filter(({ t }, k) => t < last && k % Math.ceil(knots.length / CURVE_POINTS) === 0);
    const way = [...along, found.end];
    found.phase = { mu: way.map(({ mu }) => mu), nu: way.map(({ R }) => focusLogit(R, m)) };
    return found;
  }

  /* mu, nu, alpha, loss and phase curve of one paradigm at rising times >= 0; the hybrid switches at the time `turn`. */
  function trajectory(paradigm, m, C, times, turn = 0) {
    if (paradigm !== "hybrid") return { times, ...flow(paradigm, m, C, times) };
    const early = times.filter((t) => t <= turn);
    if (early.length === times.length) return { times, ...flow("soft", m, C, times) };
    const soft = flow("soft", m, C, [...early, turn]);
    const hard = flow("hard", m, C, times.slice(early.length), soft.end);
    const joined = (key) => [...soft[key].slice(0, early.length), ...hard[key]];
    const phase = { mu: [...soft.phase.mu, ...hard.phase.mu], nu: [...soft.phase.nu, ...hard.phase.nu] };
    return { times, mu: joined("mu"), nu: joined("nu"), alpha: joined("alpha"), loss: joined("loss"), phase };
  }

  /* ---------- fixed focus ---------- */

  /* The x >= 0 with e^x - 1 + n x = y (G11). */
  const linearExponential = (n, y) => focusLogit(y / n, n + 1);

  /* The margin at time t with the attention held at alpha (F1 to F3). */
  function fixedMargin(paradigm, alpha, t, C) {
    const N = C - 1;
    if (paradigm === "soft") return linearExponential(N, alpha * alpha * t) / alpha;
    if (paradigm === "hard") return linearExponential(N, alpha * t);
    let [low, high] = [0, linearExponential(N, t)]; // no weight above alpha = 1, where the second term is gone
    for (let i = 0; i < 200 && high - low > 1e-14 * high; i += 1) {
      const mu = (low + high) / 2;
      const decay = -Math.expm1(-mu) * N * N;
      const passed = alpha * (Math.expm1(mu) + N * mu) + ((1 - alpha) / C) * (Math.expm1(mu) + 2 * N * mu + decay);
      if (passed < alpha * t) low = mu;
      else high = mu;
    }
    return (low + high) / 2;
  }

  /* What the loss gains for each bit of attention moved to the foreground (F5), at the classifier of (alpha, t). */
  function incentive(paradigm, alpha, t, C) {
    const mu = fixedMargin(paradigm, alpha, t, C);
    if (paradigm === "soft") return ((C - 1) * mu) / (Math.exp(alpha * mu) + C - 1);
    const { gain } = classifier(mu, C); // C beta - 1
    return paradigm === "hard" ? Math.log1p(gain) : gain / (1 + alpha * gain);
  }

  /* ---------- the figure ---------- */

  const POINTS = 241;
  const ALPHAS = Array.from({ length: 100 }, (_, i) => (i + 0.5) / 100);
  const EARLIEST = 1e-4; // the logarithmic axis begins at this share of T
  const LEAST = 1e-2; // incentive that is drawn
  const PANELS = ["mu", "nu", "alpha", "phase", "loss", "incentive"];
  const FIXED = PARADIGMS.slice(0, 3); // the hybrid has no loss of its own

  function drawPanel(panel, state) {
    const most = (key) => Math.max(...PARADIGMS.map(({ name }) => Math.max(...state.curves[name][key]))) * 1.04 || 1;
    const byTime = panel.key !== "phase";
    const x = byTime
      ? { low: state.log ? state.times[0] : 0, high: state.T, log: state.log, name: "time t" }
      : { low: 0, high: most("mu"), name: "margin \u03bc" };
    const y = { low: 0, high: panel.key === "alpha" ? 1 : most(byTime ? panel.key : "nu") };
    Object.assign(panel, fcamDraw.drawAxes(panel.svg, x, y));
    if (byTime && state.s > 0 && state.s < 1) fcamDraw.vertical(panel, panel.svg, state.s * state.T, "turn");
    for (const { name } of PARADIGMS) {
      const found = state.curves[name];
      if (byTime) fcamDraw.curve(panel, name, state.times, found[panel.key]);
      else fcamDraw.curve(panel, name, found.phase.mu, found.phase.nu);
    }
    panel.marks = fcamDraw.element("g", { class: "marks" }, panel.svg);
  }

  /* Incentives over alpha at the time that is read. */
  function drawIncentives(panel, state) {
    const found = FIXED.map(({ name }) => {
      const points = ALPHAS.map((alpha) => [alpha, incentive(name, alpha, state.times[state.index], state.C)]);
      return { name, points: points.filter(([, I]) => I >= LEAST) };
    });
    const most = Math.max(1, 2 * (state.C - 1), ...found.flatMap(({ points }) => points.map(([, I]) => I)));
    const x = { low: 0, high: 1, name: "attention \u03b1, held fixed" };
    Object.assign(panel, fcamDraw.drawAxes(panel.svg, x, { low: LEAST, high: most, log: true }));
    for (const { name, points } of found) {
      fcamDraw.curve(panel, name, points.map(([alpha]) => alpha), points.map(([, I]) => I));
    }
  }

  function markPanel(panel, state) {
    const i = state.index;
    panel.marks.replaceChildren();
    if (panel.key !== "phase") fcamDraw.vertical(panel, panel.marks, state.times[i], "cursor");
    for (const { name } of PARADIGMS) {
      const found = state.curves[name];
      const cx = panel.toX(panel.key === "phase" ? found.mu[i] : state.times[i]);
      const cy = panel.toY(found[panel.key === "phase" ? "nu" : panel.key][i]);
      fcamDraw.element("circle", { cx, cy, r: 4, class: "dot", "data-paradigm": name }, panel.marks);
    }
  }

  /* ---------- the controls ---------- */

  function start(root) {
    const part = (key) => root.querySelector(`[data-part="${key}"]`);
    const field = (key) => part(`${key}-field`);
    const state = { log: false, index: POINTS - 1, curves: {}, times: [] };
    const panels = PANELS.map((key) => ({ key, svg: part(key) }));
    const incentives = panels.pop();

    function readout() {
      part("time").textContent = fcamDraw.shown(state.times[state.index]);
      part("at").setAttribute("aria-valuetext", `t = ${fcamDraw.shown(state.times[state.index])}`);
      for (const { name } of PARADIGMS) {
        for (const key of ["mu", "nu", "alpha", "loss"]) {
          part(`${key}-${name}`).textContent = fcamDraw.shown(state.curves[name][key][state.index]);
        }
      }
      for (const panel of panels) markPanel(panel, state);
      drawIncentives(incentives, state);
    }

    function compute() {
      const share = (i) => (state.log ? EARLIEST ** (1 - i / (POINTS - 1)) : i / (POINTS - 1));
      state.times = Array.from({ length: POINTS }, (_, i) => state.T * share(i));
      for (const { name } of PARADIGMS) {
        state.curves[name] = trajectory(name, state.m, state.C, state.times, state.s * state.T);
      }
      for (const panel of panels) drawPanel(panel, state);
      readout();
    }

    /* Draw the allowed values of the fields; say what is wrong with the others. */
    function draw() {
      const faults = SETTINGS.map((key) => {
        const fault = fcamDraw.problem(field(key), field(key).value);
        field(key).setAttribute("aria-invalid", Boolean(fault));
        if (!fault) state[key] = Number(field(key).value);
        return fault;
      });
      part("said").textContent = faults.filter(Boolean).join(" ");
      for (const key of SETTINGS) {
        const [slider, byPower] = [part(`${key}-slider`), key !== "s"]; // over the logarithm but for the switch
        slider.value = byPower ? Math.log10(state[key]) : state[key];
        slider.setAttribute("aria-valuetext", byPower ? fcamDraw.shown(state[key]) : `at ${state.s} of the time`);
      }
      compute();
    }

    function toAddress() {
      const { m, C, T, s, log } = state;
      fcamDraw.toAddress({ m, C, T, s, ...(log ? { log: 1 } : {}) });
    }

    function enter() {
      draw();
      toAddress();
    }

    /* Take settings as an address or a preset has them, the others' defaults; says what is wrong with those left out. */
    function take(given) {
      const faults = SETTINGS.map((key) => {
        const text = given.get(key) ?? field(key).defaultValue;
        const fault = fcamDraw.problem(field(key), text);
        field(key).value = fault ? field(key).defaultValue : Number(text);
        return fault;
      });
      [state.log, state.index] = [given.get("log") === "1", POINTS - 1];
      [part("log").checked, part("at").value] = [state.log, state.index];
      draw();
      part("said").textContent = faults.filter(Boolean).join(" ");
    }

    for (const key of SETTINGS) {
      part(`${key}-slider`).addEventListener("input", ({ target }) => {
        const value = 10 ** Number(target.value);
        const digits = 10 ** Math.max(0, Math.floor(Math.log10(value)) - 1);
        const rounded = Math.min(field(key).max, Math.max(field(key).min, Math.round(value / digits) * digits));
        field(key).value = key === "s" ? target.value : rounded;
        enter();
      });
      field(key).addEventListener("input", enter);
    }
    for (const button of root.querySelectorAll("button[data-preset]")) {
      button.addEventListener("click", () => {
        take(new URLSearchParams(button.dataset.preset));
        toAddress();
      });
    }
    part("at").addEventListener("input", (event) => {
      state.index = Number(event.target.value);
      readout();
    });
    for (const panel of panels) {
      panel.svg.addEventListener("pointermove", (event) => {
        const bounds = panel.svg.getBoundingClientRect();
        const x = ((event.clientX - bounds.left) / bounds.width) * fcamDraw.BOX.width;
        const y = ((event.clientY - bounds.top) / bounds.height) * fcamDraw.BOX.height;
        state.index = nearest(panel, x, y);
        part("at").value = state.index;
        readout();
      });
    }

    part("log").addEventListener("change", (event) => {
      state.log = event.target.checked;
      enter();
    });

    /* The point under the pointer: by time, or in the phase portrait by distance to any curve. */
    function nearest(panel, x, y) {
      const { left, right, width } = fcamDraw.BOX;
      const share = (x - left) / (width - left - right);
      if (panel.key !== "phase") return Math.round(Math.min(1, Math.max(0, share)) * (POINTS - 1));
      let best = [Infinity, 0];
      for (const { name } of PARADIGMS) {
        state.curves[name].mu.forEach((mu, i) => {
          const far = Math.hypot(panel.toX(mu) - x, panel.toY(state.curves[name].nu[i]) - y);
          if (far < best[0]) best = [far, i];
        });
      }
      return best[1];
    }

    fcamDraw.fromAddress(take);
  }

  document.addEventListener("DOMContentLoaded", () => document.querySelectorAll(".fcam-explorer").forEach(start));
  return { trajectory, incentive, focusLogit, wrightOmega, start };
})();
window.fcamExplorer = fcamExplorer;
