/* The plane of focus and prediction after each epoch of training: heatmaps of four models that a slider moves.

Everything shown is computed by the library when the book is built and lies in the page as JSON.
*/
"use strict";

const fcamCourse = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const BINS = 5;
  const BOX = { left: 25, top: 4, side: 125, bottom: 129 }; // of the grid, in units of the drawing
  // Percent from which a cell is so far from an empty one that its number needs the other ink, on a light and a dark page.
  const TURNS = { strong: 38, half: 19 };
  const EARLY = 2; // epochs, for the button
  const AFTER = 2; // epochs after the switch, for the button
  const MILLISECONDS = 700; // an epoch in play
  const MEASURES = ["accuracy", "focus_accuracy", "saif"];

  const still = () => window.matchMedia("(prefers-reduced-motion: reduce)").matches;
  const toX = (share) => BOX.left + share * BOX.side;
  const toY = (share) => BOX.bottom - share * BOX.side;

  function element(name, attributes, parent) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    parent.append(made);
    return made;
  }

  /* A cell's percentage as printed in it: whole, a half to the even side, "<1" for little, nothing for none. */
  function cellText(percent) {
    if (percent < 1) return percent === 0 ? "" : "<1";
    const up = Math.round(percent);
    return String(up - percent === 0.5 && up % 2 === 1 ? up - 1 : up);
  }

  /* Axes, cells without numbers, the outline of SAIF and the way of the mean: what later changes is returned. */
  function drawPlane(svg) {
    const size = BOX.side / BINS;
    const cells = [];
    for (let i = 0; i < BINS * BINS; i += 1) {
      const [x, y] = [toX(Math.floor(i / BINS) / BINS), toY((i % BINS) / BINS) - size];
      element("rect", { x, y, width: size, height: size, class: "empty" }, svg);
      const rect = element("rect", { x, y, width: size, height: size, class: "cell" }, svg);
      cells.push({ rect, x: x + size / 2, y: y + size / 2 + 4 });
    }
    const [x, y] = [toX(1) - size, toY(1)];
    element("rect", { x, y, width: size, height: size, class: "outline under" }, svg);
    element("rect", { x, y, width: size, height: size, class: "outline" }, svg);
    const way = element("path", { class: "way", "data-part": "way" }, svg);
    const dot = element("circle", { r: 3.8, class: "dot", "data-part": "dot" }, svg);
    for (const cell of cells) {
      cell.text = element("text", { x: cell.x, y: cell.y, "text-anchor": "middle", class: "number" }, svg);
    }
    drawAxes(svg);
    return { cells, way, dot };
  }

  function drawAxes(svg) {
    for (const value of ["0", "1"]) {
      const anchor = value === "0" ? "start" : "end";
      element("text", { x: toX(Number(value)), y: BOX.bottom + 13, "text-anchor": anchor }, svg).textContent = value;
      const level = toY(Number(value)) + (value === "0" ? 0 : 10);
      element("text", { x: BOX.left - 5, y: level, "text-anchor": "end" }, svg).textContent = value;
    }
    const across = element("text", { x: toX(0.5), y: BOX.bottom + 15, "text-anchor": "middle", class: "axis" }, svg);
    named(across, "attention", "a", "z");
    const [x, y] = [11, toY(0.5)];
    const turned = { x, y, "text-anchor": "middle", transform: `rotate(-90 ${x} ${y})`, class: "axis" };
    named(element("text", turned, svg), "score", "s", "y");
  }

  /* An axis name such as "score s_y", its letter slanted and the index below. */
  function named(text, word, letter, index) {
    text.textContent = `${word} `;
    element("tspan", { class: "letter" }, text).textContent = letter;
    element("tspan", { class: "index", dy: 3 }, text).textContent = index;
  }

  function showPlane(plane, shown, epoch) {
    shown.cells[epoch].forEach((percent, i) => {
      const { rect, text } = plane.cells[i];
      rect.style.fillOpacity = Math.sqrt(percent / 100); // small shares are the finding
      text.textContent = cellText(percent);
      for (const [name, least] of Object.entries(TURNS)) text.classList.toggle(name, percent >= least);
    });
    const points = shown.a_z.slice(0, epoch + 1).map((a, i) => `${toX(a).toFixed(1)} ${toY(shown.s_y[i]).toFixed(1)}`);
    plane.way.setAttribute("d", `M${points.join("L")}`);
    plane.dot.setAttribute("cx", toX(shown.a_z[epoch]));
    plane.dot.setAttribute("cy", toY(shown.s_y[epoch]));
  }

  /* What the picture says, for readers who do not see it. */
  function described(shown, epoch) {
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

  function start(root, data) {
    const part = (key) => root.querySelector(`[data-part="${key}"]`);
    const slider = part("slider");
    const last = data.epochs.length - 1;
    const at = data.switch ?? last;
    const figures = [...root.querySelectorAll("figure")].map((figure) => {
      const svg = figure.querySelector("svg");
      return { figure, svg, shown: data.paradigms[figure.dataset.paradigm], plane: drawPlane(svg) };
    });
    let timer = null;

    function show(epoch) {
      slider.value = epoch;
      slider.setAttribute("aria-valuetext", `epoch ${epoch} of ${last}${epoch === data.switch ? ", the switch" : ""}`);
      part("epoch").textContent = epoch;
      for (const { figure, svg, shown, plane } of figures) {
        showPlane(plane, shown, epoch);
        svg.setAttribute("aria-label", described(shown, epoch));
        for (const key of MEASURES) {
          figure.querySelector(`[data-part="${key}"]`).textContent = shown[key][epoch].toFixed(3);
        }
      }
      part("loss").textContent = epoch > at ? "now HA" : "still SA";
    }

    function pause() {
      clearInterval(timer);
      timer = null;
      part("play").textContent = "Play";
    }

    function play() {
      if (Number(slider.value) === last) show(0);
      part("play").textContent = "Pause";
      timer = setInterval(() => {
        show(Number(slider.value) + 1);
        if (Number(slider.value) === last) pause();
      }, still() ? 2 * MILLISECONDS : MILLISECONDS);
    }

    const goals = { start: 0, early: EARLY, switch: at, after: at + AFTER, end: last };
    slider.max = last;
    root.style.setProperty("--switch", at / last);
    part("switch").hidden = data.switch === null;
    part("play").addEventListener("click", () => (timer === null ? play() : pause()));
    slider.addEventListener("input", () => {
      pause();
      show(Number(slider.value));
    });
    for (const button of root.querySelectorAll("[data-jump]")) {
      button.addEventListener("click", () => {
        pause();
        show(Math.min(last, goals[button.dataset.jump]));
      });
    }
    show(last);
  }

  document.addEventListener("DOMContentLoaded", () => {
    const data = document.getElementById("fcam-course-data");
    if (data) document.querySelectorAll(".fcam-course").forEach((root) => start(root, JSON.parse(data.textContent)));
  });
  return { start };
})();
window.fcamCourse = fcamCourse;
