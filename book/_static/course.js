/* The plane of focus and prediction after each epoch of training: heatmaps of four models that a slider moves.

Everything shown is computed by the library when the book is built and lies in the page as JSON.
*/
"use strict";

const fcamCourse = (() => {
  const EARLY = 2; // epochs, for the button
  const AFTER = 2; // epochs after the switch, for the button
  const MILLISECONDS = 700; // an epoch in play
  const MEASURES = ["accuracy", "focus_accuracy", "saif"];

  const still = () => window.matchMedia("(prefers-reduced-motion: reduce)").matches;

  function start(root, data) {
    const part = (key) => root.querySelector(`[data-part="${key}"]`);
    const slider = part("slider");
    const last = data.epochs.length - 1;
    const at = data.switch ?? last;
    const figures = [...root.querySelectorAll("figure")].map((figure) => {
      const svg = figure.querySelector("svg");
      return { figure, svg, shown: data.paradigms[figure.dataset.paradigm], plane: fcamDraw.drawPlane(svg) };
    });
    let timer = null;
    const view = new IntersectionObserver((entries) => {
      if (entries.some((entry) => entry.isIntersecting)) play();
    }, { threshold: 0.6 });

    function show(epoch) {
      slider.value = epoch;
      slider.setAttribute("aria-valuetext", `epoch ${epoch} of ${last}${epoch === data.switch ? ", the switch" : ""}`);
      part("epoch").textContent = epoch;
      for (const { figure, svg, shown, plane } of figures) {
        fcamDraw.showPlane(plane, shown, epoch);
        svg.setAttribute("aria-label", fcamDraw.describedPlane(shown, epoch));
        for (const key of MEASURES) {
          figure.querySelector(`[data-part="${key}"]`).textContent = shown[key][epoch].toFixed(3);
        }
        const recorded = shown.recorded?.[epoch - 1]; // of other runs, which nobody measured before training
        figure.querySelector('[data-part="recorded"]').textContent = recorded?.toFixed(3) ?? "\u2013";
      }
      part("loss").textContent = epoch > at ? "now HA" : "still SA";
    }

    function pause() {
      view.disconnect(); // whoever touched the figure decides from then on
      clearInterval(timer);
      timer = null;
      part("play").textContent = "Play";
    }

    function play() {
      view.disconnect();
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
    show(0);
    if (!still()) view.observe(root.querySelector(".planes")); // plays once, when it is first seen
  }

  document.addEventListener("DOMContentLoaded", () => {
    const data = document.getElementById("fcam-course-data");
    if (data) document.querySelectorAll(".fcam-course").forEach((root) => start(root, JSON.parse(data.textContent)));
  });
  return { start };
})();
window.fcamCourse = fcamCourse;
