/* Test mosaics one by one, with the attention that four models give their segments after each epoch.

Weights and probabilities come in hundredths, after each epoch: the weights, the place of the largest, the predicted
class and its probability. All segments lie in one picture, a row a mosaic.
*/
"use strict";

const fcamGallery = (() => {
  function start(root, data) {
    const part = (key) => root.querySelector(`[data-part="${key}"]`);
    const { classes, lists, mosaics, sprite } = data.gallery;
    const last = data.epochs.length - 1;
    const pictures = [...root.querySelectorAll(".picture")];
    const rows = [...root.querySelectorAll("tr[data-paradigm]")];
    const state = { list: 0, place: 0, epoch: last };

    function showPictures(position, mosaic) {
      pictures.forEach((picture, segment) => {
        const isForeground = segment === mosaic.foreground;
        const across = pictures.length > 1 ? (100 * segment) / (pictures.length - 1) : 0;
        const down = mosaics.length > 1 ? (100 * position) / (mosaics.length - 1) : 0;
        picture.style.backgroundPosition = `${across}% ${down}%`;
        picture.classList.toggle("foreground", isForeground);
        picture.setAttribute("aria-label", `segment ${segment + 1}${isForeground ? ", foreground" : ""}`);
      });
    }

    function showRow(row, mosaic) {
      const look = mosaic.looks[row.dataset.paradigm][state.epoch];
      const [focus, predicted, sure] = look.slice(-3);
      row.querySelectorAll(".weight").forEach((cell, segment) => {
        cell.textContent = (look[segment] / 100).toFixed(2);
        cell.style.setProperty("--weight", `${look[segment]}%`);
        cell.classList.toggle("focus", segment === focus);
      });
      const isRight = predicted === mosaic.label;
      const said = row.querySelector(".said");
      said.replaceChildren(
        sign(isRight ? "\u2713" : "\u2717", isRight ? "right: " : "wrong: "), // check mark, ballot x
        ` ${classes[predicted]}, ${(sure / 100).toFixed(2)}`,
      );
      said.classList.toggle("wrong", !isRight);
    }

    /* A sign for the eye, a word for the ear. */
    function sign(shown, spoken) {
      const both = document.createElement("span");
      const [eye, ear] = [document.createElement("span"), document.createElement("span")];
      eye.setAttribute("aria-hidden", "true");
      eye.textContent = shown;
      ear.className = "ear";
      ear.textContent = spoken;
      both.append(eye, ear);
      return both;
    }

    function show() {
      const list = lists[state.list].mosaics;
      const position = list[state.place];
      const mosaic = mosaics[position];
      showPictures(position, mosaic);
      for (const row of rows) showRow(row, mosaic);
      part("place").textContent = `${state.place + 1} of ${list.length}`;
      part("caption").textContent = `Test mosaic ${mosaic.number + 1}, label ${classes[mosaic.label]}, epoch ${state.epoch}`;
      part("epoch").textContent = state.epoch;
      part("slider").setAttribute("aria-valuetext", `epoch ${state.epoch} of ${last}`);
    }

    /* Forward or back, from the last to the first and the other way. */
    function step(by) {
      const number = lists[state.list].mosaics.length;
      state.place = (state.place + by + number) % number;
      show();
    }

    root.style.setProperty("--sprite", `url("${sprite}")`);
    root.style.setProperty("--sheet", `${100 * pictures.length}% ${100 * mosaics.length}%`);
    part("list").replaceChildren(...lists.map(({ title }, i) => new Option(title, i)));
    part("list").addEventListener("change", (event) => {
      [state.list, state.place] = [Number(event.target.value), 0];
      show();
    });
    part("previous").addEventListener("click", () => step(-1));
    part("next").addEventListener("click", () => step(1));
    [part("slider").max, part("slider").value] = [last, last];
    part("slider").addEventListener("input", (event) => {
      state.epoch = Number(event.target.value);
      show();
    });
    show();
  }

  document.addEventListener("DOMContentLoaded", () => {
    const data = document.getElementById("fcam-course-data");
    if (data) document.querySelectorAll(".fcam-gallery").forEach((root) => start(root, JSON.parse(data.textContent)));
  });
  return { start };
})();
window.fcamGallery = fcamGallery;
