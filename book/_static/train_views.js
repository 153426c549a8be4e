/* What the training page shows: table, curves, planes, eight test mosaics, and the losses of one of them in numbers.

`state.runs[name]` holds a paradigm's lists over epochs (loss, accuracy, ..., cells) and its `looks` at the mosaics now.
*/
"use strict";

const fcamTrainViews = (() => {
  const MEASURES = ["loss", "accuracy", "focus_accuracy", "saif"];
  const NAMES = ["soft", "hard", "lvml", "hybrid"];
  const LEAST_LOSS = 1e-3; // that is drawn
  const LEAST_PULL = 0.02; // that fills the height: smaller ones look small
  const TERMS = 3; // of a sum that are written
  const BESIDE = 14; // of a panel's units: a pointer that near takes hold of the switch

  const epochOf = (state) => Math.min(...NAMES.map((name) => state.runs[name].loss.length)) - 1;
  const seen = (state) => NAMES.filter((name) => !state.unseen.has(name));

  function made(parent, name, attributes = {}, text = "") {
    const child = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) child.setAttribute(key, value);
    child.textContent = text;
    parent.append(child);
    return child;
  }

  function table(part, state) {
    part("epoch").textContent = Math.max(0, epochOf(state));
    for (const name of NAMES) {
      const row = part(`row-${name}`);
      for (const measure of MEASURES) {
        const value = state.runs[name][measure].at(-1);
        row.querySelector(`[data-measure="${measure}"]`).textContent = value === undefined ? "\u2013" : value.toFixed(3);
      }
    }
  }

  /* The table as it stands, without the column of boxes. */
  const csv = (rows) => rows.map(({ cells }) => [...cells].slice(0, -1).map((cell) => cell.textContent.trim()).join(",")).join("\n");

  function curves(panels, state) {
    const xs = Array.from({ length: state.epochs + 1 }, (_, i) => i);
    for (const panel of panels) {
      const { measure, svg } = panel;
      const x = { low: 0, high: state.epochs, whole: true, name: "epoch" };
      const most = Math.max(3, ...seen(state).flatMap((name) => state.runs[name].loss));
      const y = measure === "loss" ? { low: LEAST_LOSS, high: most, log: true } : { low: 0, high: 1 };
      Object.assign(panel, fcamDraw.drawAxes(svg, x, y));
      const least = (value) => Math.max(value, y.low);
      for (const name of state.band ? seen(state) : []) {
        const [low, high] = state.recorded[name][measure]; // from epoch 1
        const around = [...xs.slice(1), ...xs.slice(1).reverse()];
        const points = fcamDraw.path(panel, around, [...low, ...high.slice().reverse()].map(least));
        fcamDraw.element("polygon", { points, class: "band", "data-paradigm": name }, svg);
      }
      for (const name of seen(state)) {
        fcamDraw.curve(panel, name, xs, state.runs[name][measure].slice(0, state.epochs + 1).map(least));
      }
      fcamDraw.vertical(panel, svg, state.turn, "turn");
      fcamDraw.element("circle", { cx: panel.toX(state.turn), cy: fcamDraw.BOX.top, r: 5, class: "grip" }, svg);
    }
  }

  /* The epoch under a pointer. */
  function epochUnder(panel, event, state) {
    const bounds = panel.svg.getBoundingClientRect();
    const x = ((event.clientX - bounds.left) / bounds.width) * fcamDraw.BOX.width;
    const share = (x - panel.toX(0)) / (panel.toX(state.epochs) - panel.toX(0));
    return { epoch: Math.min(state.epochs - 1, Math.max(1, Math.round(share * state.epochs))), x };
  }

  /* Drag the switch in any panel: `drop` when it is let go. */
  function draggable(panels, state, redraw, drop) {
    for (const panel of panels) {
      const { svg } = panel;
      svg.addEventListener("pointerdown", (event) => {
        if (Math.abs(epochUnder(panel, event, state).x - panel.toX(state.turn)) > BESIDE) return;
        event.preventDefault();
        svg.setPointerCapture(event.pointerId);
      });
      svg.addEventListener("pointermove", (event) => {
        if (!svg.hasPointerCapture(event.pointerId)) return;
        state.turn = epochUnder(panel, event, state).epoch;
        redraw();
      });
      svg.addEventListener("lostpointercapture", drop);
    }
  }

  /* The digits of one mosaic side by side, with a frame around the foreground. */
  function digitsOf(parent, { digits, place }, { pixels }) {
    parent.style.setProperty("--segments", digits.length);
    const canvas = made(parent, "canvas", { width: 9 * digits.length, height: 8, "aria-hidden": "true" });
    const context = canvas.getContext("2d");
    digits.forEach((digit, j) => {
      for (let p = 0; p < 64; p += 1) {
        const grey = (parseInt(pixels[64 * digit + p], 17) * 255) / 16;
        context.fillStyle = `rgb(${grey} ${grey} ${grey})`;
        context.fillRect(9 * j + (p % 8), Math.floor(p / 8), 1, 1);
      }
    });
    made(parent, "span", { class: "frame", style: `--place: ${place}` });
  }

  /* Bars of M segments, to be given heights: `height` units of which the bars start at `zero`. */
  function bars(parent, M, height, zero) {
    const svg = fcamDraw.element("svg", { viewBox: `0 0 ${M} ${height}`, preserveAspectRatio: "none", role: "img" }, parent);
    if (zero < height) fcamDraw.element("line", { x1: 0, x2: M, y1: zero, y2: zero, class: "zero" }, svg);
    const rects = Array.from({ length: M }, (_, j) => fcamDraw.element("rect", { x: j + 0.05, width: 0.79 }, svg));
    const show = (values, said) => {
      values.forEach((value, j) => {
        rects[j].setAttribute("y", zero - Math.max(0, value));
        rects[j].setAttribute("height", Math.abs(value) || 0);
      });
      svg.setAttribute("aria-label", said);
    };
    return show;
  }

  /* Eight cards, each with a button to choose it; returns what fills them. */
  function cards(parent, mosaics, packed, state, choose) {
    parent.replaceChildren();
    return mosaics.map((mosaic, i) => {
      const card = made(parent, "div", { class: "instance" });
      const name = `Test mosaic ${i + 1}, label ${mosaic.label}: digits ${mosaic.digits.map((digit) => packed.labels[digit]).join(", ")}`;
      const button = made(card, "button", { type: "button", class: "mosaic", "aria-label": name });
      digitsOf(button, mosaic, packed);
      card.addEventListener("pointerenter", () => choose(i));
      button.addEventListener("focus", () => choose(i));
      button.addEventListener("click", () => choose(i));
      const rows = NAMES.map((paradigm) => {
        const row = made(card, "div", { class: "attention", "data-paradigm": paradigm });
        return { paradigm, row, show: bars(row, mosaic.digits.length, 1, 1), told: made(row, "span", { "aria-hidden": "true" }) };
      });
      return () => {
        button.setAttribute("aria-pressed", i === state.chosen);
        for (const { paradigm, row, show, told } of rows) {
          const { label, looks } = state.runs[paradigm];
          const look = looks?.[i];
          row.hidden = state.unseen.has(paradigm);
          if (!look) continue;
          const predicted = state.foreground.split(",")[look.predicted];
          const isRight = predicted === mosaic.label;
          told.textContent = `${predicted} ${isRight ? "\u2713" : "\u2717"}`; // check mark, ballot x
          const on = `attention ${look.a[mosaic.place].toFixed(2)} on the foreground`;
          show(look.a, `${label}: ${on}, predicts ${predicted}, ${isRight ? "right" : "wrong"}`);
        }
      };
    });
  }

  /* The loss of a look in numbers, its largest terms first and the largest of all in bold. */
  function written(loss, { a, p, loss: value }) {
    const part = {
      soft: (j) => [a[j], `${a[j].toFixed(2)} <i>x</i><sub>${j + 1}</sub>`],
      hard: (j) => [-a[j] * Math.log(p[j]), `${a[j].toFixed(2)} \u00d7 ${Math.abs(Math.log(p[j])).toFixed(2)}`],
      lvml: (j) => [a[j] * p[j], `${a[j].toFixed(2)} \u00d7 ${p[j].toFixed(2)}`],
    }[loss];
    const terms = a.map((_, j) => part(j)).sort(([one], [other]) => other - one).map(([, text]) => text);
    const sum = `<b>${terms[0]}</b> + ${terms.slice(1, TERMS).join(" + ")}${terms.length > TERMS ? " + \u2026" : ""}`;
    const around = { soft: ["\u2212log <i>p</i><sub>y</sub>(", ")"], hard: ["", ""], lvml: ["\u2212log(", ")"] }[loss];
    return `${around[0]}${sum}${around[1]} = ${value.toFixed(3)}`;
  }

  /* Digits, formulas and pulls of one mosaic; returns what fills them. */
  function detail(part, mosaic, number, packed, state) {
    part("chosen").replaceChildren();
    digitsOf(part("chosen"), mosaic, packed);
    part("which").textContent = `Test mosaic ${number + 1}, label ${mosaic.label}`;
    const rows = NAMES.map((name) => {
      const row = part(`loss-${name}`);
      const pulls = row.querySelector(".pulls");
      pulls.replaceChildren();
      return { name, row, show: bars(pulls, mosaic.digits.length, 2, 1) };
    });
    return () => {
      const looks = NAMES.map((name) => state.runs[name].looks?.[number]).filter(Boolean);
      const most = Math.max(LEAST_PULL, ...looks.flatMap(({ pull }) => pull.map(Math.abs)));
      for (const { name, row, show } of rows) {
        const { label, looks: all, trainedBy } = state.runs[name];
        const look = all?.[number];
        row.hidden = state.unseen.has(name);
        if (!look) continue;
        row.querySelector(".terms").innerHTML = written(trainedBy, look); // numbers alone
        const strongest = look.pull.reduce((best, pull, j) => (Math.abs(pull) > Math.abs(look.pull[best]) ? j : best), 0);
        const way = look.pull[strongest] < 0 ? "towards" : "away from";
        const size = Math.abs(look.pull[strongest]).toFixed(3);
        show(look.pull.map((pull) => -pull / most), `${label}: strongest pull ${size}, ${way} segment ${strongest + 1}`);
        row.querySelector(".most").textContent = size;
      }
    };
  }

  function start(root, packed, state) {
    const part = (key) => root.querySelector(`[data-part="${key}"]`);
    const panels = MEASURES.map((measure) => ({ measure, svg: part(`curve-${measure}`) }));
    const planes = NAMES.map((name) => {
      const figure = part(`plane-${name}`);
      const svg = figure.querySelector("svg");
      return { name, figure, svg, plane: fcamDraw.drawPlane(svg) };
    });
    let mosaics = [];
    let fill = [];
    let fillDetail = () => {};

    function choose(i) {
      if (i === state.chosen || !mosaics[i]) return;
      state.chosen = i;
      fillDetail = detail(part, mosaics[i], i, packed, state);
      for (const one of [...fill, fillDetail]) one();
    }

    return {
      panels,
      csv: () => csv([...part("table").rows]),
      /* The first test mosaics of a new run: {index, label, place}. */
      mosaics({ index, label, place }, M) {
        const digits = Array.from(label, (_, i) => [...index.slice(i * M, (i + 1) * M)]);
        mosaics = digits.map((one, i) => ({ digits: one, label: packed.labels[one[place[i]]], place: place[i] }));
        fill = cards(part("mosaics"), mosaics, packed, state, choose);
        state.chosen = -1;
        choose(0);
      },
      draw() {
        table(part, state);
        curves(panels, state);
        for (const { name, figure, svg, plane } of planes) {
          const run = state.runs[name];
          figure.hidden = state.unseen.has(name);
          if (!run.cells.length) continue;
          fcamDraw.showPlane(plane, run, run.cells.length - 1);
          svg.setAttribute("aria-label", fcamDraw.describedPlane(run, run.cells.length - 1));
        }
        for (const one of [...fill, fillDetail]) one();
      },
    };
  }

  return { NAMES, draggable, epochOf, start };
})();
