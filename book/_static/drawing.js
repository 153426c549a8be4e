/* What the figures of several pages share: SVG elements, numbers, axes, and the plane of focus and prediction.

Scripts of one page come in any order, so the others use this one when the page is there, not while they load.
*/
"use strict";

const fcamDraw = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const BOX = { width: 360, height: 250, left: 44, right: 10, top: 12, bottom: 40 }; // of a panel with axes
  const BINS = 5;
  const PLANE = { left: 25, top: 4, side: 125, bottom: 129 }; // of the plane's grid
  // Percent from which a cell is so far from an empty one that its number needs the other ink, on a light and a dark page.
  const TURNS = { strong: 38, half: 19 };
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

  /* ---------- settings, in fields and in the address ---------- */

  /* What is wrong with a value for a field, by the field's limits; nothing where it is allowed. */
  function problem({ name, type, min, max, step, pattern, title }, text) {
    const value = Number(text);
    const isWhole = step === "1";
    const isNumber = text.trim() !== "" && value >= min && value <= max && (!isWhole || Number.isInteger(value));
    if (type === "number" ? isNumber : new RegExp(`^(?:${pattern})$`).test(text)) return "";
    const range = `${isWhole ? "a whole number" : "a number"} from ${min} to ${number.format(max)}`;
    return `${name} is "${text}": give ${type === "number" ? range : title}.`;
  }

  /* Settings stand behind the #, which a page from disk may change too; a heading's anchor has no equals sign. */
  const toAddress = (settings) => history.replaceState(null, "", `#${new URLSearchParams(settings)}`);

  /* Take the settings in the address, now and whenever a reader puts others there. */
  function fromAddress(take) {
    const isGiven = () => location.hash.includes("=");
    const settings = () => new URLSearchParams(isGiven() ? location.hash.slice(1) : "");
    addEventListener("hashchange", () => isGiven() && take(settings()));
    take(settings());
  }

  /* ---------- panels with axes ---------- */

  /* Round numbers from 0 to `high`, four or five of them; whole ones where asked. */
  function ticks(high, whole = false) {
    const raw = high / 4;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map((f) => f * power).find((s) => s >= raw && (!whole || Number.isInteger(s)));
    return Array.from({ length: Math.floor(high / (step ?? 1) + 1e-9) + 1 }, (_, i) => i * (step ?? 1));
  }

  function decades(low, high) {
    const every = Math.ceil((high - low) / 5);
    const all = [];
    for (let e = Math.ceil(low - 1e-9); e <= high + 1e-9; e += every) all.push(e);
    return all;
  }

  function scale({ low, high, log }, from, to) {
    const place = log ? Math.log10 : (v) => v;
    return (v) => from + ((place(v) - place(low)) / (place(high) - place(low))) * (to - from);
  }

  /* Values to mark on an axis and what to write there; of powers of ten the exponent apart. */
  const marks = ({ low, high, log, whole }, format) =>
    log
      ? decades(Math.log10(low), Math.log10(high)).map((e) => [10 ** e, "10", String(e).replace("-", "\u2212")])
      : ticks(high, whole).map((value) => [value, format.format(value), ""]);

  function write(svg, place, text, power = "") {
    const label = element("text", place, svg);
    label.textContent = text;
    if (power) element("tspan", { dy: -5, class: "power" }, label).textContent = power;
  }

  /* Draw the axes {low, high, log, whole, name} into an empty panel; returns the maps from values to the drawing. */
  function drawAxes(svg, x, y) {
    svg.replaceChildren();
    const { left, right, top, bottom, width, height } = BOX;
    const toX = scale(x, left, width - right);
    const toY = scale(y, height - bottom, top);
    for (const [value, text, power] of marks(y, number)) {
      element("line", { x1: left, x2: width - right, y1: toY(value), y2: toY(value), class: "grid" }, svg);
      write(svg, { x: left - 6, y: toY(value) + 4, "text-anchor": "end" }, text, power);
    }
    for (const [value, text, power] of marks(x, short)) {
      element("line", { x1: toX(value), x2: toX(value), y1: height - bottom, y2: height - bottom + 4, class: "axis" }, svg);
      write(svg, { x: toX(value), y: height - bottom + 17, "text-anchor": "middle" }, text, power);
    }
    element("line", { x1: left, x2: width - right, y1: height - bottom, y2: height - bottom, class: "axis" }, svg);
    write(svg, { x: (left + width - right) / 2, y: height - 5, "text-anchor": "middle" }, x.name);
    return { toX, toY };
  }

  /* The line of a paradigm through (xs[i], ys[i]). */
  const curve = (panel, name, xs, ys) =>
    element("polyline", { points: path(panel, xs, ys), class: "curve", "data-paradigm": name }, panel.svg);

  /* A vertical line at x of a panel. */
  function vertical(panel, parent, x, name) {
    const [at, { top, height, bottom }] = [panel.toX(x).toFixed(1), BOX];
    element("line", { x1: at, x2: at, y1: top, y2: height - bottom, class: name }, parent);
  }

  /* Points of a polyline through (xs[i], ys[i]). */
  const path = ({ toX, toY }, xs, ys) => ys.map((y, i) => `${toX(xs[i]).toFixed(1)},${toY(y).toFixed(1)}`).join(" ");

  /* ---------- the plane of focus and prediction ---------- */

  const planeX = (share) => PLANE.left + share * PLANE.side;
  const planeY = (share) => PLANE.bottom - share * PLANE.side;

  /* A cell's percentage as printed in it: whole, a half to the even side, "<1" for little, nothing for none. */
  function cellText(percent) {
    if (percent < 1) return percent === 0 ? "" : "<1";
    const up = Math.round(percent);
    return String(up - percent === 0.5 && up % 2 === 1 ? up - 1 : up);
  }

  /* Axes, cells without numbers, the outline of SAIF and the way of the mean: what later changes is returned. */
  function drawPlane(svg) {
    const size = PLANE.side / BINS;
    const cells = [];
    for (let i = 0; i < BINS * BINS; i += 1) {
      const [x, y] = [planeX(Math.floor(i / BINS) / BINS), planeY((i % BINS) / BINS) - size];
      element("rect", { x, y, width: size, height: size, class: "empty" }, svg);
      const rect = element("rect", { x, y, width: size, height: size, class: "cell" }, svg);
      cells.push({ rect, x: x + size / 2, y: y + size / 2 + 4 });
    }
    const [x, y] = [planeX(1) - size, planeY(1)];
    element("rect", { x, y, width: size, height: size, class: "outline under" }, svg);
    element("rect", { x, y, width: size, height: size, class: "outline" }, svg);
    const way = element("path", { class: "way", "data-part": "way" }, svg);
    const dot = element("circle", { r: 3.8, class: "dot", "data-part": "dot" }, svg);
    for (const cell of cells) {
      cell.text = element("text", { x: cell.x, y: cell.y, "text-anchor": "middle", class: "number" }, svg);
    }
    drawPlaneAxes(svg);
    return { cells, way, dot };
  }

  function drawPlaneAxes(svg) {
    for (const value of ["0", "1"]) {
      const anchor = value === "0" ? "start" : "end";
      write(svg, { x: planeX(Number(value)), y: PLANE.bottom + 13, "text-anchor": anchor }, value);
      write(svg, { x: PLANE.left - 5, y: planeY(Number(value)) + (value === "0" ? 0 : 10), "text-anchor": "end" }, value);
    }
    const across = element("text", { x: planeX(0.5), y: PLANE.bottom + 15, "text-anchor": "middle", class: "axis" }, svg);
    named(across, "attention", "a", "z");
    const [x, y] = [11, planeY(0.5)];
    const turned = { x, y, "text-anchor": "middle", transform: `rotate(-90 ${x} ${y})`, class: "axis" };
    named(element("text", turned, svg), "score", "s", "y");
  }

  /* An axis name such as "score s_y", its letter slanted and the index below. */
  function named(text, word, letter, index) {
    text.textContent = `${word} `;
    element("tspan", { class: "letter" }, text).textContent = letter;
    element("tspan", { class: "index", dy: 3 }, text).textContent = index;
  }

  /* Show epoch `epoch` of {cells, a_z, s_y}, each a list over epochs. */
  function showPlane(plane, shown, epoch) {
    shown.cells[epoch].forEach((percent, i) => {
      const { rect, text } = plane.cells[i];
      rect.style.fillOpacity = Math.sqrt(percent / 100); // small shares are the finding
      text.textContent = cellText(percent);
      for (const [name, least] of Object.entries(TURNS)) text.classList.toggle(name, percent >= least);
    });
    const points = shown.a_z.slice(0, epoch + 1).map((a, i) => `${planeX(a).toFixed(1)} ${planeY(shown.s_y[i]).toFixed(1)}`);
    plane.way.setAttribute("d", `M${points.join("L")}`);
    plane.dot.setAttribute("cx", planeX(shown.a_z[epoch]));
    plane.dot.setAttribute("cy", planeY(shown.s_y[epoch]));
  }

  /* What the picture says, for readers who do not see it. */
  function describedPlane(shown, epoch) {
    const cells = shown.cells[epoch];
    const sum = (wanted) => cells.filter((_, i) => wanted(Math.floor(i / BINS), i % BINS)).reduce((a, b) => a + b, 0);
    const said = (value) => `${value.toFixed(0)} %`;
    const last = BINS - 1;
    return (
      `${shown.label} at epoch ${epoch}, test mosaics: attention and score above 0.8 ${said(cells[cells.length - 1])}; ` +
      `score above 0.8 at less attention ${said(sum((a, s) => s === last && a < last))}; ` +
      `attention above 0.8 at a lower score ${said(sum((a, s) => a === last && s < last))}; ` +
      `neither ${said(sum((a, s) => a < last && s < last))}. ` +
      `Mean attention ${shown.a_z[epoch].toFixed(2)}, mean score ${shown.s_y[epoch].toFixed(2)}.`
    );
  }

  return {
    BOX, curve, describedPlane, drawAxes, drawPlane, element, fromAddress, path, problem, showPlane, shown, toAddress,
    vertical,
  };
})();
window.fcamDraw = fcamDraw;
