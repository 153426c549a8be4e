/* The training page's controls: settings, address, buttons, presets, and the worker that trains.

The fields of the page state defaults and limits. Sentences with {names} are templates, filled with numbers of the run.
*/
"use strict";

(() => {
  const FIXED = { batch: 64, train: 2000, test: 2000 };
  const LABELS = { soft: "SA", hard: "HA", lvml: "LVML", hybrid: "hybrid" };
  const MEASURES = ["loss", "accuracy", "focus_accuracy", "saif", "a_z", "s_y", "cells"];
  const TOLD = 10; // epochs between two sentences for those who listen

  /* A number by its name in a template, such as {m}, {soft.saif.epochs}, {hard.accuracy.1}. */
  function numberOf(path, state) {
    const [name, measure, at] = path.split(".");
    const tried = Object.entries(state.tried).map(([turn, saif]) => `${saif.toFixed(3)} switched after epoch ${turn}`);
    if (name === "tried") return tried.join(", ");
    if (name === "chance") return (1 / state.m).toFixed(3);
    if (!measure) return state[name];
    const values = state.runs[name][measure === "reaches" ? "accuracy" : measure];
    const first = values.findIndex((value) => value >= 0.9);
    if (measure === "reaches") return first < 0 ? "not in this run" : `after epoch ${first}`;
    return values[state[at] ?? Number(at)]?.toFixed(3) ?? "not in this run";
  }

  function start(root, { digits, recorded }) {
    const part = (key) => root.querySelector(`[data-part="${key}"]`);
    const isAble = window.Worker && document.createElement("canvas").getContext?.("2d");
    [part("unable").hidden, part("app").hidden, part("recorded").open] = [Boolean(isAble), !isAble, !isAble];
    if (!isAble) return;
    const fields = Object.fromEntries([...root.querySelectorAll("[data-setting]")].map((f) => [f.dataset.setting, f]));
    const read = (field, text) => (field.type === "number" ? Number(text) : text);
    const each = (of) => Object.fromEntries(Object.entries(fields).map(([key, field]) => [key, of(key, field)]));
    const defaults = each((_, field) => read(field, field.defaultValue));
    const templates = [...root.querySelectorAll("[data-template]")].map((told) => ({ told, text: told.textContent }));
    const state = { ...defaults, recorded, runs: {}, tried: {}, run: 0, epoch: 0, unseen: new Set(), band: true };
    const view = fcamTrainViews.start(root, digits, state);
    const { NAMES, epochOf } = fcamTrainViews;
    const code = `"use strict"; (${fcamTrainRun})((${fcamTrainModel})()).serve(self);`;
    const worker = new Worker(URL.createObjectURL(new Blob([code], { type: "text/javascript" })));
    let [playing, resumes, frame] = [false, false, null];
    let settled = state.turn; // the switch as the worker knows it, not as it is dragged
    const settings = () => each((key) => state[key]);
    const say = (text) => (part("said").textContent = text);

    /* Answers come at the end, the words for those who listen each tenth epoch, the command always. */
    function fill({ told, text }) {
      const isEnd = state.epoch === state.epochs;
      const isDue = { end: isEnd, tenth: isEnd || (state.epoch && state.epoch % TOLD === 0), always: true };
      const filled = () => text.replace(/\{([\w.]+)\}/g, (_, path) => numberOf(path, state));
      if (isDue[told.dataset.template]) told.textContent = filled();
      else if (told.dataset.template === "end") told.textContent = "Train to the end: the numbers come from your run.";
      else if (!state.epoch) told.textContent = "";
    }

    function draw() {
      frame = null;
      state.epoch = Math.max(0, epochOf(state));
      part("progress").textContent = `epoch ${state.epoch} of ${state.epochs}`;
      part("play").textContent = playing ? "Pause" : "Train";
      // The library's band belongs to the default setting, with any seed.
      const isDefault = Object.keys(fields).every((key) => key === "seed" || state[key] === defaults[key]);
      part("band").disabled = !isDefault;
      state.band = part("band").checked && isDefault;
      templates.forEach(fill);
      view.draw();
    }

    const redraw = () => (frame ??= requestAnimationFrame(draw));

    function keep({ name, epoch, turn, row, looks, trainedBy }) {
      if (!Number.isFinite(row.loss)) {
        pause();
        say(`${LABELS[name]} has no finite loss after epoch ${epoch}: choose a smaller learning rate or momentum.`);
        return;
      }
      for (const key of MEASURES) state.runs[name][key].splice(epoch, Infinity, row[key]);
      Object.assign(state.runs[name], { looks, trainedBy });
      if (name === "hybrid" && epoch === state.epochs) state.tried[turn] = row.saif;
    }

    worker.onmessage = ({ data }) => {
      if (data.run !== state.run) return;
      if (data.kind === "ready") view.mosaics(data, state.m);
      else keep(data);
      if (epochOf(state) >= state.epochs) playing = false;
      redraw();
    };

    /* Begin anew with the settings as they are. */
    function begin() {
      [playing, settled, state.tried] = [false, state.turn, {}];
      state.run += 1;
      for (const name of NAMES) {
        state.runs[name] = { label: LABELS[name], looks: null, ...Object.fromEntries(MEASURES.map((key) => [key, []])) };
      }
      worker.postMessage({ kind: "start", settings: { ...FIXED, ...settings(), run: state.run }, packed: digits });
      show();
    }

    const toEnd = () => worker.postMessage({ kind: "goal", epoch: state.epochs });

    function play() {
      if (epochOf(state) >= state.epochs) begin();
      playing = true;
      toEnd();
      redraw();
    }

    function pause() {
      playing = false;
      worker.postMessage({ kind: "pause" });
      redraw();
    }

    function show() {
      fields.turn.max = state.epochs - 1;
      for (const [key, field] of Object.entries(fields)) {
        field.value = state[key];
        field.setAttribute("aria-invalid", "false");
      }
      for (const name of NAMES) part(`see-${name}`).checked = !state.unseen.has(name);
      redraw();
    }

    /* Take allowed values: the switch moves in the run, more epochs prolong it, anything else begins anew. */
    function change(given) {
      const isOther = ([key, value]) => (key === "epochs" ? value < state.epochs : key !== "turn");
      const isNew = Object.entries(given).some(isOther);
      if ("epochs" in given) state.tried = {};
      Object.assign(state, given);
      state.turn = Math.min(state.turn, state.epochs - 1);
      say("");
      if (isNew) begin();
      else if (state.turn !== settled) worker.postMessage({ kind: "turn", turn: state.turn });
      if (playing) toEnd();
      settled = state.turn;
      show();
      toAddress();
    }

    function toAddress() {
      const band = part("band").checked ? {} : { band: 0 };
      fcamDraw.toAddress({ ...settings(), ...(state.unseen.size ? { hide: [...state.unseen] } : {}), ...band });
    }

    /* Take settings as an address or a preset has them, the others' defaults; says what is wrong with those left out. */
    function take(given) {
      const wrong = ["epochs", ...Object.keys(fields)].map((key) => {
        const text = given.get(key) ?? fields[key].defaultValue;
        const fault = fcamDraw.problem(fields[key], text);
        state[key] = fault ? defaults[key] : read(fields[key], text);
        if (key === "epochs") fields.turn.max = state.epochs - 1;
        return given.has(key) ? fault : "";
      });
      state.turn = Math.min(state.turn, state.epochs - 1);
      state.unseen = new Set((given.get("hide") ?? "").split(",").filter((name) => NAMES.includes(name)));
      part("band").checked = given.get("band") !== "0";
      say([...new Set(wrong)].join(" ").trim());
      begin();
    }

    for (const [key, field] of Object.entries(fields)) {
      field.addEventListener("change", () => {
        const fault = fcamDraw.problem(field, field.value);
        if (!fault) return change({ [key]: read(field, field.value) });
        field.setAttribute("aria-invalid", "true");
        say(fault);
      });
    }
    for (const name of NAMES) {
      part(`see-${name}`).addEventListener("change", ({ target }) => {
        state.unseen[target.checked ? "delete" : "add"](name);
        change({});
      });
    }
    for (const button of root.querySelectorAll("[data-preset]")) {
      button.addEventListener("click", () => {
        for (const text of root.querySelectorAll("[data-question]")) text.hidden = text.dataset.question !== button.dataset.for;
        take(new URLSearchParams(button.dataset.preset));
        toAddress();
        play();
      });
    }
    fcamTrainViews.draggable(view.panels, state, redraw, () => change({}));
    part("band").addEventListener("change", () => change({}));
    part("play").addEventListener("click", () => (playing ? pause() : play()));
    part("one").addEventListener("click", () => {
      if (playing) pause();
      else worker.postMessage({ kind: "goal", epoch: Math.min(state.epochs, epochOf(state) + 1) });
    });
    part("again").addEventListener("click", () => {
      say("");
      begin();
    });
    part("copy").addEventListener("click", () => {
      const failed = () => say("The browser does not let the page copy: select the table instead.");
      const copied = async () => navigator.clipboard.writeText(view.csv()); // no clipboard without https
      copied().then(() => say("The table is copied."), failed);
    });
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden && resumes) play();
      resumes = document.hidden && playing;
      if (resumes) pause();
    });
    fcamDraw.fromAddress(take);
  }

  document.addEventListener("DOMContentLoaded", () => {
    const data = document.getElementById("fcam-train-data");
    if (data) document.querySelectorAll(".fcam-train").forEach((root) => start(root, JSON.parse(data.textContent)));
  });
})();
